// Package demo shows the main use end to end. It posts intents, kills a function process halfway, and
// checks on the chain that each intent was carried out exactly once, without a gap.
package demo

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/shared/chain/evm"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

//go:embed intents.jsonl
var standard []byte

// Intent is one line of an intents file, and the body of one create.
type Intent struct {
	Submitter string          `json:"submitter"`
	RequestID string          `json:"requestId"`
	Payload   json.RawMessage `json:"payload"`

	account txmanager.Submitter
	call    txmanager.Call
}

// maxLine bounds one line of an intents file, in bytes.
const maxLine = 256 << 10

// LoadIntents reads the intents file at path, or the demo's own file for "". The error names every invalid
// line with its number and reason.
func LoadIntents(path string, known []txmanager.Submitter) (intents []Intent, err error) {
	defer steps.Return(&err)
	text := standard
	if path != "" {
		text = steps.Value(os.ReadFile(path))
	}
	return readIntents(text, known)
}

func readIntents(text []byte, known []txmanager.Submitter) ([]Intent, error) {
	var intents []Intent
	var problems []error
	seen := make(map[string]int)
	for i, line := range bytes.Split(text, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		in, err := readIntent(line, known)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", i+1, err))
			continue
		}
		key := string(in.account) + " " + in.RequestID
		if first, ok := seen[key]; ok {
			problems = append(problems, fmt.Errorf("line %d: requestId %q of this submitter is already in line %d", i+1, in.RequestID, first))
			continue
		}
		seen[key] = i + 1
		intents = append(intents, in)
	}
	if len(intents) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("the file has no intents: want one JSON object a line"))
	}
	return intents, errors.Join(problems...)
}

// OnChain returns the same intents of the same keys on another chain.
func OnChain(intents []Intent, chainID uint64) []Intent {
	other := slices.Clone(intents)
	for i, in := range other {
		other[i].account = eip155.NewSubmitter(chainID, in.account.Address())
		other[i].Submitter = string(other[i].account)
	}
	return other
}

// readIntent reads one line as strictly as the API does.
func readIntent(line []byte, known []txmanager.Submitter) (in Intent, err error) {
	defer steps.Return(&err)
	if len(line) > maxLine {
		return in, fmt.Errorf("%d bytes: want at most %d", len(line), maxLine)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	steps.OK(d.Decode(&in), `want {"submitter", "requestId", "payload"}`)
	if _, err := d.Token(); err != io.EOF {
		return in, errors.New("there is more after the JSON object: want one object a line")
	}
	if len(in.RequestID) == 0 || len(in.RequestID) > 128 {
		return in, fmt.Errorf("requestId is %d bytes long: want 1 to 128", len(in.RequestID))
	}
	in.account, err = eip155.ParseSubmitter(in.Submitter, known[0].ChainID())
	steps.OK(err, "submitter")
	if !slices.Contains(known, in.account) {
		return in, fmt.Errorf("submitter %s is not one of the %d dev accounts", in.Submitter, len(known))
	}
	canonical, _, err := evm.Family{}.ParsePayload(in.Payload)
	steps.OK(err)
	in.call, err = new(evm.Connector).ParsePayload(canonical)
	return in, err
}
