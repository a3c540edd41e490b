package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// EventsMode selects how events are published.
type EventsMode string

// The modes.
const (
	EventsPoll    EventsMode = "poll"      // nothing: callers ask
	EventsLog     EventsMode = "log"       // lines of the log
	EventsOutbox  EventsMode = "mq_outbox" // kept, and published to Pub/Sub
	EventsWebhook EventsMode = "webhook"   // kept, and posted to endpoints
)

// Events configures who is notified of changes of transactions.
type Events struct {
	// Mode selects how events are published.
	Mode EventsMode
	// Keep is how long events can be read again, where they are kept.
	Keep time.Duration
	// Topic is the Pub/Sub topic, projects/P/topics/T; "" for none.
	Topic string
	// PubSubEndpoint is host:port of a Pub/Sub without TLS; "" is Google's.
	PubSubEndpoint string
	// URLs are the webhook endpoints, by name.
	URLs map[string]string
	// Secrets sign the events of each endpoint, in the order given.
	Secrets map[string][]Secret
	// Callers limit an endpoint to the transactions of these callers. An endpoint without an
	// entry gets the events of all.
	Callers map[string][]string
	// Timeout is how long an endpoint may take over one event.
	Timeout time.Duration
}

// Kept is true if events are kept.
func (e Events) Kept() bool { return e.Mode == EventsOutbox || e.Mode == EventsWebhook }

func (e *Events) settings() []setting {
	return []setting{
		{name: "events.mode", def: string(EventsPoll),
			meaning: "where changes of transactions are published: nowhere (callers poll), the log, Pub/Sub, or webhook endpoints. In the last two events are kept, and `GET /api/v1/events` reads them. A transaction keeps the mode in which it was accepted",
			field:   choice(&e.Mode, EventsPoll, EventsLog, EventsOutbox, EventsWebhook)},
		{name: "events.keep", def: "720h",
			meaning: "how long events can be read again; events that an endpoint has not accepted by then are not delivered",
			field:   duration(&e.Keep, time.Hour, 10*365*24*time.Hour)},
		{name: "events.pubsub.topic",
			meaning: "the topic that events are published to with `events.mode=mq_outbox`",
			field:   text(&e.Topic, "projects/P/topics/T", topicName)},
		{name: "events.pubsub.endpoint",
			meaning: "a Pub/Sub other than Google's, reached without TLS and without credentials: the emulator's",
			field:   ownPort(&e.PubSubEndpoint)},
		{name: "events.webhook.urls",
			meaning: "the endpoints to which `events.mode=webhook` delivers; redirects are not followed",
			field:   handlerURLs(&e.URLs)},
		{name: "events.webhook.secrets",
			meaning: "the keys that sign the deliveries to each of `events.webhook.urls`, needed by *publish* only; a secret; while a key is changed, the old and the new one of that name",
			field:   handlerSecrets(&e.Secrets)},
		{name: "events.webhook.callers",
			meaning: "the callers whose events an endpoint gets; an endpoint that is not named here gets the events of all callers",
			field:   endpointCallers(&e.Callers)},
		{name: "events.webhook.timeout", constant: true, def: "5s",
			meaning: "how long an endpoint may take over one event; more than a second below `lease.duration`",
			field:   duration(&e.Timeout, 100*time.Millisecond, time.Minute)},
	}
}

// topicName is a topic's full name; its project's id may have a domain in front.
var topicName = regexp.MustCompile(`^projects/([a-z0-9.-]+:)?[a-z][a-z0-9-]+/topics/[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`)

func endpointCallers(p *map[string][]string) field {
	return field{
		want: "name=caller, separated by commas; a name may be repeated",
		set: func(text string) bool {
			all, ok := pairs(text, func(value string) bool { return value != "" && !strings.ContainsAny(value, " \t") })
			if !ok {
				return false
			}
			*p = make(map[string][]string, len(all))
			for _, pair := range all {
				(*p)[pair[0]] = append((*p)[pair[0]], pair[1])
			}
			return true
		},
		unset: func() bool { return len(*p) == 0 },
	}
}

func (c *Config) eventRules() []rule {
	e := c.Events
	var stray []string
	for _, names := range [][]string{slices.Collect(maps.Keys(e.Secrets)), slices.Collect(maps.Keys(e.Callers))} {
		for _, name := range names {
			if e.URLs[name] == "" && !slices.Contains(stray, name) {
				stray = append(stray, name)
			}
		}
	}
	slices.Sort(stray)
	return []rule{{
		of:     []string{"events.mode", "events.pubsub.topic"},
		broken: e.Mode == EventsOutbox && e.Topic == "",
		say:    "events.mode is mq_outbox: set events.pubsub.topic, where events are published to",
	}, {
		of:     []string{"events.mode", "events.webhook.urls"},
		broken: e.Mode == EventsWebhook && len(e.URLs) == 0,
		say:    "events.mode is webhook: set events.webhook.urls, where events are posted to",
	}, {
		of:     []string{"events.webhook.urls", "events.webhook.secrets", "events.webhook.callers"},
		broken: len(stray) > 0,
		say:    fmt.Sprintf("events.webhook.secrets or events.webhook.callers names %q, which events.webhook.urls does not have: name their URLs, or take them away", stray),
	}, {
		of:     []string{"events.webhook.timeout", "lease.duration"},
		broken: e.Timeout+time.Second >= c.Lease.Duration && e.Mode == EventsWebhook,
		say:    "set events.webhook.timeout more than a second below lease.duration: an endpoint is told within one lease, and what it took is still to be recorded",
	}}
}
