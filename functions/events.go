package functions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/functions/admin"
	"github.com/fencepost/fencepost/shared/config"
	"github.com/fencepost/fencepost/shared/events"
	"github.com/fencepost/fencepost/shared/events/pubsub"
	eventhook "github.com/fencepost/fencepost/shared/events/webhook"
	"github.com/fencepost/fencepost/shared/store"
	eventlog "github.com/fencepost/fencepost/shared/store/events"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/webhook"
)

// openEvents makes the publishers of the mode. Every process knows the endpoints' names. Only a
// process that delivers needs their secrets.
func (a *App) openEvents() (*events.Worker, error) {
	c, endpoints := a.config.Events, []string(nil)
	publishers := make(map[string]txmanager.DomainEventPublisher)
	switch c.Mode {
	case config.EventsOutbox:
		endpoints = []string{admin.PubSubEndpoint}
		a.topic = pubsub.New(c.Topic, c.PubSubEndpoint)
		publishers[admin.PubSubEndpoint] = a.topic
	case config.EventsWebhook:
		endpoints = slices.Sorted(maps.Keys(c.URLs))
		var err error
		if publishers, err = a.webhooks(c); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.extensions.Publishers)) {
		switch {
		case a.extensions.Publishers[name] == nil:
			return nil, fmt.Errorf("publisher %s is nil: leave it out of Extensions.Publishers, or give it code", name)
		case !c.Kept():
			return nil, fmt.Errorf("publisher %s is compiled in, and events.mode is %s, which keeps no events: set %s or %s", name, c.Mode, config.EventsOutbox, config.EventsWebhook)
		case !config.HandlerName(name):
			return nil, fmt.Errorf("publisher %q: want a lower-case letter, then up to 63 of a-z, 0-9, dot, dash and underscore", name)
		case slices.Contains(endpoints, name):
			return nil, fmt.Errorf("publisher %s is compiled in, and an endpoint of the settings: give one of them another name", name)
		}
		endpoints, publishers[name] = append(endpoints, name), a.extensions.Publishers[name]
	}
	if c.Mode == config.EventsWebhook && len(endpoints) == 0 {
		return nil, errors.New("events.mode is webhook, and there is no endpoint: set FENCEPOST_EVENTS_WEBHOOK_URLS (events.webhook.urls), or compile a publisher in (Extensions.Publishers)")
	}
	a.base.Endpoints = endpoints
	return &events.Worker{
		Book: eventlog.New(a.store.Store), Endpoints: endpoints, Publishers: publishers, Wake: a.base.Tasks, Rules: leaseRules(a.config.Lease),
		EndAfter: a.base.Deadline / 2, Node: a.base.Node, Log: a.base.Log, Told: countDelivered, At: a.base.Points.At,
	}, nil
}

// webhooks returns the publishers of events.webhook.urls, if this process delivers events.
func (a *App) webhooks(c config.Events) (map[string]txmanager.DomainEventPublisher, error) {
	all := make(map[string]txmanager.DomainEventPublisher)
	for name, url := range c.URLs {
		keys, err := keysOf(c.Secrets[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("events.webhook.secrets of %s: %w", name, err)
		case len(keys) == 0 && a.serves("publish"):
			return nil, fmt.Errorf("endpoint %s of events.webhook.urls has no secret in events.webhook.secrets, so it could not check the signature of a delivery", name)
		case len(keys) == 0:
			continue
		}
		var p txmanager.DomainEventPublisher = eventhook.Publisher{Endpoint: webhook.Endpoint{URL: url, Keys: keys, Timeout: c.Timeout, Client: a.services},
			Log: func(ctx context.Context, e txmanager.Event, err error) {
				a.base.Log.WarnContext(ctx, "webhook endpoint not reached", "endpoint", name, telemetry.TxIDKey, e.TxID, "error", err.Error())
			}}
		if callers := c.Callers[name]; len(callers) > 0 {
			p = events.OnlyOf(admin.Spellings(callers), p)
		}
		all[name] = p
	}
	return all, nil
}

// eventMode returns how lease sessions handle events under the settings.
func eventMode(e config.Events) store.EventMode {
	switch {
	case e.Kept():
		return store.EventsKept
	case e.Mode == config.EventsLog:
		return store.EventsLogged
	}
	return store.EventsDropped
}

// countDelivered counts events delivered to an endpoint.
func countDelivered(ctx context.Context, endpoint string, taken int, err error) {
	telemetry.EventDelivery.Add(ctx, int64(taken), telemetry.EventResult(endpoint, "taken"))
	if err != nil {
		telemetry.EventDelivery.Add(ctx, 1, telemetry.EventResult(endpoint, "failed"))
	}
}
