package functions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/intentmac"
	"github.com/fencepost/fencepost/shared/signer/kms"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// openIntents reads the keys of the MACs of intents. A process that accepts intents does not start
// without a key. A process that signs does start: the intents that it cannot check wait.
func (a *App) openIntents(context.Context) error {
	a.kms = kms.New(kms.Options{Endpoint: a.config.Signer.KMSEndpoint, Timeout: a.config.Signer.Timeout})
	var texts []string
	for _, key := range a.config.Intents.MACKeys {
		texts = append(texts, key.Reveal())
	}
	keys, err := intentmac.New(texts, a.kms)
	switch {
	case err != nil:
		return fmt.Errorf("intents.macKeys: %w", err)
	case len(texts) == 0 && a.acceptsIntents():
		return errors.New("set FENCEPOST_INTENTS_MAC_KEYS (intents.macKeys): this process accepts intents, and nothing is signed for an intent without a MAC")
	}
	a.intents = keys
	if ids := keys.IDs(); len(ids) > 0 {
		a.base.Log.Info("keys of the MACs of intents, the first of which makes them", "macKeys", ids)
	}
	return nil
}

// acceptsIntents reports whether this process stores intents. The function admin stores them when it
// continues a transfer after an operator's statement.
func (a *App) acceptsIntents() bool {
	return a.config.Platform.FunctionTarget == "admin" && a.config.Trading.URL != "" ||
		slices.Contains([]string{"", All, "create", "transfer"}, a.config.Platform.FunctionTarget)
}

// signsIntents reports whether this process signs.
func (a *App) signsIntents() bool {
	return slices.Contains([]string{"", All, string(txmanager.KindAdvance)}, a.config.Platform.FunctionTarget)
}
