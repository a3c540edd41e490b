package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Policy limits the intents of a submitter. 0, "" and nil are no limit. An empty list or map is refused, since it may be meant to
// allow nothing. [ParsePolicy] reads a policy from JSON.
type Policy struct {
	MaxValue       string   `json:"maxValue,omitempty"`       // wei of one transaction
	MaxValuePerDay string   `json:"maxValuePerDay,omitempty"` // wei in any 24 hours
	MaxPerMinute   int      `json:"maxPerMinute,omitempty"`   // intents in any 60 seconds
	Targets        []string `json:"targets,omitempty"`        // addresses, functions as "0x…:transfer(address,uint256)", and "deploy" for contracts to deploy

	// A fee is the most that gas may cost: the gas limit times maxFeePerGas.
	MaxFeePerTx          string `json:"maxFeePerTx,omitempty"`          // wei of one transaction
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas,omitempty"` // wei per gas
	MaxGas               uint64 `json:"maxGas,omitempty"`               // gas limit of one transaction
	MaxFeesPerDay        string `json:"maxFeesPerDay,omitempty"`        // wei that is signed for in any 24 hours; "0": nothing is signed

	PerCaller map[string]CallerLimits `json:"perCaller,omitempty"` // by full names; "*": each caller that is not named
	Tokens    map[string]TokenLimits  `json:"tokens,omitempty"`    // by the addresses of the contracts
}

// CallerLimits limit one caller, in addition to the submitter's own limits. An empty member is
// no limit.
type CallerLimits struct {
	MaxValue       string `json:"maxValue,omitempty"`       // wei of one transaction
	MaxValuePerDay string `json:"maxValuePerDay,omitempty"` // wei in any 24 hours
	MaxPerMinute   int    `json:"maxPerMinute,omitempty"`   // intents in any 60 seconds
	MaxQueued      int    `json:"maxQueued,omitempty"`      // intents that wait for a nonce at once
}

// TokenLimits limit the transferred and approved amounts of one token, in its smallest unit.
// Calls to its contract are limited to transfer, approve and transferFrom, and to functions
// that Targets names. An empty member is no limit.
type TokenLimits struct {
	MaxAmount       string `json:"maxAmount,omitempty"`       // of one transaction
	MaxAmountPerDay string `json:"maxAmountPerDay,omitempty"` // in any 24 hours
}

// ParsePolicy reads a policy from JSON. It refuses a member that would be sent as no limit: one that is empty (0, "", [] or {}),
// or unknown. A name in other letter case is unknown. The error names the member. A member that is null is no limit.
func ParsePolicy(text []byte) (p Policy, err error) { return parseSent[Policy](text) }

// parseOne reads one value without unknown members.
func parseOne[T any](text []byte) (v T, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err = d.Decode(&v); {
	case errors.Is(err, io.EOF):
		return v, errors.New("it is empty")
	case err == nil && d.Decode(new(any)) != io.EOF:
		return v, errors.New("it has more than one value")
	}
	return v, err
}

// parseSent reads a value of which each member that is written will be sent.
func parseSent[T any](text []byte) (v T, err error) {
	if v, err = parseOne[T](text); err == nil {
		err = checkSent(v, text)
	}
	if err != nil {
		return *new(T), err
	}
	return v, nil
}

// checkSent refuses a member of the value's text that is not sent.
func checkSent(value any, text []byte) error {
	var written, sent map[string]any
	out, err := json.Marshal(value)
	if err := errors.Join(err, json.Unmarshal(text, &written), json.Unmarshal(out, &sent)); err != nil {
		return err
	}
	if written == nil {
		return errors.New("it is null: want an object")
	}
	if name := firstUnsent(written, sent); name != "" {
		return fmt.Errorf("%s: it is empty (0, \"\", [] or {}), or its name is in other letter case: leave out what is no limit", name)
	}
	return nil
}

// firstUnsent returns the path of the first member that is written and not sent; "": there is none. A null is sent by leaving it out.
func firstUnsent(written, sent map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(written)) {
		got, isSent := sent[name]
		if isSent != (written[name] != nil) {
			return name
		}
		inner, _ := written[name].(map[string]any)
		innerSent, _ := got.(map[string]any)
		if below := firstUnsent(inner, innerSent); below != "" {
			return name + "." + below
		}
	}
	return ""
}

// check refuses an empty list or map, which would not be sent.
func (p Policy) check() error {
	var empty string
	switch {
	case p.Targets != nil && len(p.Targets) == 0:
		empty = "targets"
	case p.PerCaller != nil && len(p.PerCaller) == 0:
		empty = "perCaller"
	case p.Tokens != nil && len(p.Tokens) == 0:
		empty = "tokens"
	default:
		return nil
	}
	return fmt.Errorf("client: policy: %s: it is empty, which is no limit: leave it nil, or name what is limited", empty)
}

// PolicyUse is what counts now against the limits over time of a submitter's policy.
type PolicyUse struct {
	At              time.Time     `json:"at"`
	IntentsInMinute int64         `json:"intentsInMinute"`
	ValueInDay      string        `json:"valueInDay"` // wei
	FeesInDay       string        `json:"feesInDay"`  // wei; "": the policy does not limit it
	Scopes          []PolicyScope `json:"scopes"`     // one page
	NextPageToken   string        `json:"nextPageToken"`
}

// PolicyScope is the use by one caller, or of one token.
type PolicyScope struct {
	Scope           string `json:"scope"`
	IntentsInMinute int64  `json:"intentsInMinute"`
	InDay           string `json:"inDay"` // of a caller in wei, of a token in its base units
}

// PolicyUse returns what counts against the submitter's policy; pageToken "" is the first page of callers and tokens.
// It is for operators.
func (c *Client) PolicyUse(ctx context.Context, submitter, pageToken string) (PolicyUse, error) {
	return get[PolicyUse](ctx, c, pathOf(submitters, submitter, "policy", "use"), queryOf("pageSize", 1000, "pageToken", pageToken))
}

// SetPolicy replaces the submitter's policy. It is for operators.
func (c *Client) SetPolicy(ctx context.Context, submitter string, p Policy, reason string) (Submitter, error) {
	if err := p.check(); err != nil {
		return Submitter{}, err
	}
	body := struct {
		Policy
		Reason string `json:"reason"`
	}{p, reason}
	return call[Submitter](ctx, c, request{method: http.MethodPut, path: pathOf(submitters, submitter, "policy"), body: body})
}
