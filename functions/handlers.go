package functions

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/handlers"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// allHandlers returns the compiled-in handlers and the services of handlers.urls for which this
// process has a secret. It also stores the names of all handlers, which requests may use.
func (a *App) allHandlers() (map[string]txmanager.Handler, error) {
	all := maps.Clone(a.extensions.Handlers)
	if all == nil {
		all = make(map[string]txmanager.Handler)
	}
	a.handlers = slices.Collect(maps.Keys(all))
	for name := range a.extensions.Handlers {
		if !config.HandlerName(name) {
			return nil, fmt.Errorf("handler %q: want a lower-case letter, then up to 63 of a-z, 0-9, dot, dash and underscore", name)
		}
	}
	of := a.config.Handlers
	for name, url := range of.URLs {
		if slices.Contains(a.handlers, name) {
			return nil, fmt.Errorf("handler %s is compiled in, and in handlers.urls: give one of them another name", name)
		}
		a.handlers = append(a.handlers, name)
		keys, err := keysOf(of.Secrets[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("handlers.secrets of %s: %w", name, err)
		case len(keys) == 0 && a.signs():
			return nil, fmt.Errorf("handler %s of handlers.urls has no secret in handlers.secrets; add NAME=SECRET there, so that the service can verify its requests", name)
		case len(keys) > 0:
			service := webhook.Endpoint{URL: url, Keys: keys, Timeout: of.Timeout, Client: a.services}
			all[name] = handlers.Service{Endpoint: service, Read: a.readAnswer, Log: a.base.Log}.Handle
		}
	}
	return all, nil
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
func (a *App) readAnswer(s txmanager.Submitter, payload json.RawMessage) (txmanager.Call, error) {
	family, err := a.base.Families.Of(s)
	if err != nil {
		return txmanager.Call{}, err
	}
	canonical, _, err := family.ParsePayload(payload)
	if err != nil {
		return txmanager.Call{}, err
	}
	return family.StoredCall(canonical)
}
