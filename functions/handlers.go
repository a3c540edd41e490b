package functions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/handlers"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/web"
	"github.com/fencepost/fencepost/shared/webhook"
)

// allHandlers returns the compiled-in handlers and the services of handlers.urls for which this
// process has a secret. It also stores the names of all handlers, which requests may use.
func (a *App) allHandlers(ext Extensions) (map[string]txmanager.Handler, error) {
	all := maps.Clone(ext.Handlers)
	if all == nil {
		all = make(map[string]txmanager.Handler)
	}
	a.handlerNames = slices.Collect(maps.Keys(all))
	for name := range ext.Handlers {
		if !config.HandlerName(name) {
			return nil, fmt.Errorf("handler %q: want a lower-case letter, then up to 63 of a-z, 0-9, dot, dash and underscore", name)
		}
	}
	of := a.config.Handlers
	for name, url := range of.URLs {
		if slices.Contains(a.handlerNames, name) {
			return nil, fmt.Errorf("handler %s is compiled in, and in handlers.urls: give one of them another name", name)
		}
		a.handlerNames = append(a.handlerNames, name)
		keys, err := keysOf(of.Secrets[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("handlers.secrets of %s: %w", name, err)
		case len(keys) == 0 && a.asksHandlers():
			return nil, fmt.Errorf("handler %s of handlers.urls has no secret in handlers.secrets: nobody could prove what it is asked", name)
		case len(keys) > 0:
			all[name] = handlers.Service{URL: url, Keys: keys, Timeout: of.Timeout, Read: a.readAnswer, Log: a.Log}.Handler(a.services)
		}
	}
	return all, nil
}

// asksHandlers reports whether this process signs, and therefore calls handlers.
func (a *App) asksHandlers() bool {
	target := a.config.Platform.FunctionTarget
	return target == "" || target == All || target == string(txmanager.KindAdvance)
}

func keysOf(secrets []config.Secret) (keys []webhook.Key, err error) {
	for _, s := range secrets {
		k, err := webhook.ParseKey(s.Reveal())
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// readAnswer reads the transaction that a service returned, by the rules of a caller's payload.
func (a *App) readAnswer(payload json.RawMessage) (txmanager.Call, error) {
	canonical, _, err := evm.ParsePayload(payload)
	if err != nil {
		return txmanager.Call{}, err
	}
	return a.defaultChain().ParsePayload(canonical) // the payload form is the same on every chain
}

// inputOf returns the payload of a request that names a handler. It is any JSON value; only the
// handler interprets it. Two inputs are equal if they have the same members and values, with numbers
// compared by their serve.Digits.
func (a *App) inputOf(handler string, payload json.RawMessage) (canonical []byte, fingerprint [32]byte, err error) {
	if !slices.Contains(a.handlerNames, handler) {
		return nil, fingerprint, web.FieldProblem("handler", "is none of this deployment: leave it out to post a transaction, or name one that is compiled in or in handlers.urls")
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fingerprint, &web.Problem{Code: web.InvalidJSON, Field: "payload", Detail: "is no JSON value", Cause: err}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fingerprint, fmt.Errorf("write the payload: %w", err)
	}
	canonical = bytes.TrimSpace(b.Bytes())
	return canonical, txmanager.Fingerprint(handler, canonical), nil
}
