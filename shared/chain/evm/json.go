package evm

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

func invalid(field, format string, args ...any) error {
	return &chain.FieldError{Field: field, Code: chain.CodeInvalidField, Problem: fmt.Sprintf(format, args...)}
}

func badJSON(problem string) error {
	return &chain.FieldError{Field: "payload", Code: chain.CodeInvalidJSON, Problem: problem}
}

// readObject reads one JSON object. Its fields must be among allowed, each at most once and not null.
// encoding/json alone would accept duplicate names, names in any letter case, and invalid UTF-8.
func readObject(raw []byte, allowed ...string) (map[string]json.RawMessage, error) {
	if len(raw) > maxPayload {
		return nil, invalid("payload", "want at most %d bytes", maxPayload)
	}
	if !utf8.Valid(raw) {
		return nil, badJSON("want UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, badJSON("want a JSON object")
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		if err := readField(d, fields, allowed); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, badJSON("want a JSON object: " + err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badJSON("want nothing after the object")
	}
	return fields, nil
}

func readField(d *json.Decoder, fields map[string]json.RawMessage, allowed []string) error {
	token, err := d.Token()
	name, ok := token.(string)
	if err != nil || !ok {
		return badJSON("want a JSON object with names in quotes")
	}
	var value json.RawMessage
	if err := d.Decode(&value); err != nil {
		return badJSON("want a JSON object: " + err.Error())
	}
	field := "payload." + shorten(name)
	if !slices.Contains(allowed, name) {
		return &chain.FieldError{Field: field, Code: chain.CodeUnsupportedField, Problem: "want only " + strings.Join(allowed, ", ")}
	}
	if _, twice := fields[name]; twice {
		return invalid(field, "given twice: want it once")
	}
	if string(value) == "null" {
		return invalid(field, "null: leave the field out instead")
	}
	fields[name] = value
	return nil
}

func readString(raw json.RawMessage, field string) (string, error) {
	var text string
	if !bytes.HasPrefix(raw, []byte(`"`)) || json.Unmarshal(raw, &text) != nil {
		return "", invalid(field, "want a string")
	}
	return text, nil
}

func readHex(raw json.RawMessage, field string, limit int) ([]byte, error) {
	text, err := readString(raw, field)
	if err != nil {
		return nil, err
	}
	digits, ok := strings.CutPrefix(text, "0x")
	decoded, err := hex.DecodeString(digits)
	if !ok || err != nil {
		return nil, invalid(field, "want 0x and an even number of hex digits")
	}
	if len(decoded) > limit {
		return nil, invalid(field, "%d bytes: want at most %d", len(decoded), limit)
	}
	return decoded, nil
}

func readAddress(raw json.RawMessage, field string) (*txmanager.Address, error) {
	text, err := readString(raw, field)
	if err != nil {
		return nil, err
	}
	address, err := parseAddress(text, field)
	return &address, err
}

// parseAddress checks the checksum of an address in mixed case (https://eips.ethereum.org/EIPS/eip-55).
// Money sent to a mistyped address is lost.
func parseAddress(text, field string) (txmanager.Address, error) {
	address, err := eip155.ParseAddress(text)
	if err != nil {
		return "", invalid(field, "want an address, 0x and 40 hex digits")
	}
	digits := text[2:]
	want := common.HexToAddress(text).Hex()
	if digits != strings.ToLower(digits) && digits != strings.ToUpper(digits) && want != text {
		return "", invalid(field, "the letter case does not fit EIP-55's checksum: want %s if the digits are right", want)
	}
	return address, nil
}
