package pubsub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/events/pubsub"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const topic = "projects/proj-1/topics/events"

func start(t *testing.T) (*pstest.Server, *pubsub.Topic) {
	t.Helper()
	s := pstest.NewServer()
	t.Cleanup(func() { _ = s.Close() })
	check.OK(t)(s.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}))
	p := pubsub.New(topic, s.Addr)
	t.Cleanup(func() { _ = p.Close() })
	return s, p
}

func some(submitter string, n int) (all []txmanager.Event) {
	for i := range n {
		all = append(all, txmanager.Event{TxID: "t", Sequence: i + 1, Type: txmanager.TxConfirmed, Submitter: txmanager.Submitter(submitter),
			Caller: "shop", Body: json.RawMessage(fmt.Sprintf(`{"sequence":%d}`, i+1))})
	}
	return all
}

// Messages are published in order under the submitter's key. After a failure Publish returns how
// many were accepted before, and the key is open for the next attempt.
func TestPublishKeepsTheOrderAfterAFailure(t *testing.T) {
	t.Parallel()
	s, p := start(t)
	if n, err := p.Publish(t.Context(), some("a", 3)); n != 3 || err != nil {
		t.Fatalf("publish: got %d, %v; want 3", n, err)
	}
	for i, m := range s.Messages() {
		if want := fmt.Sprintf(`{"sequence":%d}`, i+1); string(m.Data) != want || m.OrderingKey != "a" || m.Attributes["sequence"] != fmt.Sprint(i+1) {
			t.Errorf("message %d: got %s under %q with %v, want %s under a", i, m.Data, m.OrderingKey, m.Attributes, want)
		}
	}
	for code, silent := range map[codes.Code]bool{codes.PermissionDenied: true, codes.InvalidArgument: false} {
		s.SetAutoPublishResponse(false)
		s.ResetPublishResponses(10)
		s.AddPublishResponse(nil, status.Error(code, "a secret of the service"))
		n, err := p.Publish(t.Context(), some("a", 3))
		if n != 0 || err == nil || errors.Is(err, txmanager.ErrNoAnswer) != silent || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %d, %v; want none accepted, no answer %t, and nothing of its text", code, n, err, silent)
		}
		s.SetAutoPublishResponse(true)
		check.Equal(t, fmt.Sprintf("after %s", code), check.Value(p.Publish(t.Context(), some("a", 2)))(t), 2)
	}
}

// A missing topic or an unreachable service accepts nothing, and does not delay the caller beyond
// its deadline.
func TestPublishToAMissingTopicAcceptsNothing(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	for what, p := range map[string]*pubsub.Topic{
		"topic":   pubsub.New("projects/proj-1/topics/other", s.Addr),
		"service": pubsub.New(topic, "127.0.0.1:1"),
	} {
		t.Cleanup(func() { _ = p.Close() })
		if n, err := p.Publish(t.Context(), some("a", 1)); n != 0 || !errors.Is(err, txmanager.ErrNoAnswer) {
			t.Errorf("no such %s: got %d, %v; want none accepted", what, n, err)
		}
	}
	var none *pubsub.Topic
	check.Err(t, "close of none", nil)(none.Close())
}
