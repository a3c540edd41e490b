package client

import (
	"context"
	"time"
)

// WebhookEndpoint is an endpoint that events are delivered to. The settings name it.
type WebhookEndpoint struct {
	Name            string           `json:"name"`
	Kind            string           `json:"kind"`           // webhook, pubsub or publisher
	Host            string           `json:"host,omitempty"` // of the webhook's URL; "": it has none
	Path            string           `json:"path,omitempty"` // of the webhook's URL, long parts cut
	Callers         []string         `json:"callers,omitempty"`
	Backlog         EndpointBacklog  `json:"backlog"`
	Oldest          *EndpointOldest  `json:"oldest"` // nil: nothing waits
	Paused          *EndpointPause   `json:"paused"` // nil: it is not paused
	UnansweredCalls int              `json:"unansweredCalls"`
	LastAnswer      *EndpointAnswer  `json:"lastAnswer"` // nil: it was never called
	LastTest        *EndpointTest    `json:"lastTest"`   // nil: it was never tested
	Secrets         *EndpointSecrets `json:"secrets"`    // that signed the last request; nil: none was sent yet
}

// EndpointBacklog counts the events that an endpoint has not accepted, and their submitters, up to 10,000 of each.
type EndpointBacklog struct {
	Events     int  `json:"events"`
	Submitters int  `json:"submitters"`
	More       bool `json:"more"` // there are more than these numbers
}

// EndpointOldest is the submitter whose next event has waited longest.
type EndpointOldest struct {
	Submitter     string    `json:"submitter"`
	Since         time.Time `json:"since"`
	Attempts      int       `json:"attempts"` // failed ones in a row
	LastError     *string   `json:"lastError"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
}

// EndpointPause is an operator's stop of the deliveries.
type EndpointPause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// EndpointAnswer is what a receiver answered.
type EndpointAnswer struct {
	Status *int      `json:"status"` // nil: there was no answer
	Text   string    `json:"text"`   // the first 300 bytes, or why there was no answer
	At     time.Time `json:"at"`
}

// EndpointTest is the last test of an endpoint.
type EndpointTest struct {
	By     string          `json:"by"`
	At     time.Time       `json:"at"`
	Answer *EndpointAnswer `json:"answer"` // nil: there was none yet
}

// EndpointSecrets are the secrets that signed a request.
type EndpointSecrets struct {
	Count        int      `json:"count"`
	Fingerprints []string `json:"fingerprints"`
}

// TestResult is what a test event of an endpoint led to.
type TestResult struct {
	Accepted bool `json:"accepted"` // the status is 200 to 299
	EndpointTest
}

// Redelivery tells which events are delivered again.
type Redelivery struct {
	Endpoint   string `json:"endpoint"`
	After      string `json:"after"`
	Submitters int    `json:"submitters"` // whose events are delivered again
}

// RedeliveryRequest asks for the events after a cursor again.
type RedeliveryRequest struct {
	After     string  `json:"after"`     // a cursor of [Client.ListEvents]
	Submitter *string `json:"submitter"` // nil: of all
	Reason    string  `json:"reason"`
}

// WebhookEndpoints lists the endpoints. It is for operators.
func (c *Client) WebhookEndpoints(ctx context.Context) ([]WebhookEndpoint, error) {
	all, _, err := page[WebhookEndpoint](ctx, c, endpoints, "endpoints", nil)
	return all, err
}

// TestWebhookEndpoint sends a signed test event now. It is for operators.
func (c *Client) TestWebhookEndpoint(ctx context.Context, endpoint, reason string) (TestResult, error) {
	return post[TestResult](ctx, c, pathOf(endpoints, endpoint, "test"), map[string]string{"reason": reason})
}

// PauseWebhookEndpoint stops the deliveries and keeps the events. It is for operators.
func (c *Client) PauseWebhookEndpoint(ctx context.Context, endpoint, reason string) (WebhookEndpoint, error) {
	return post[WebhookEndpoint](ctx, c, pathOf(endpoints, endpoint, "pause"), map[string]string{"reason": reason})
}

// ResumeWebhookEndpoint ends a pause. It is for operators, and [ProposedError] where two must agree.
func (c *Client) ResumeWebhookEndpoint(ctx context.Context, endpoint, reason string) (WebhookEndpoint, error) {
	return post[WebhookEndpoint](ctx, c, pathOf(endpoints, endpoint, "resume"), map[string]string{"reason": reason})
}

// RedeliverEvents delivers events again. Receivers drop those that they have. It is for operators, and
// [ProposedError] where two must agree.
func (c *Client) RedeliverEvents(ctx context.Context, endpoint string, r RedeliveryRequest) (Redelivery, error) {
	return post[Redelivery](ctx, c, pathOf(endpoints, endpoint, "redeliver"), r)
}
