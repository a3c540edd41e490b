package stack

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

const (
	// EventsTopic is the topic of [Stack.PubSub].
	EventsTopic = "projects/" + project + "/topics/fencepost-events"

	eventsMode   = "FENCEPOST_EVENTS_MODE"
	modeToPubSub = "mq_outbox"
)

// startPubSub starts the service that events are published to, with their topic.
func (s *Stack) startPubSub(ctx context.Context) {
	if s.options.Settings[eventsMode] != modeToPubSub {
		return
	}
	s.PubSub = pstest.NewServer()
	s.OnClose(s.PubSub.Close)
	_, err := s.PubSub.GServer.CreateTopic(ctx, &pubsubpb.Topic{Name: EventsTopic})
	steps.OK(err, "create the topic")
	s.settings["FENCEPOST_EVENTS_PUBSUB_TOPIC"], s.settings["FENCEPOST_EVENTS_PUBSUB_ENDPOINT"] = EventsTopic, s.PubSub.Addr
}
