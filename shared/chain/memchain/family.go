// Package memchain is a small family of chains for tests: a chain in memory, which is no chain of the EVM.
// It has its own namespace, addresses, payloads, signatures and encoding, and a fee of one number. It shows
// that the port of package chain is enough to add a family.
package memchain

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Namespace is the CAIP-2 namespace of these chains.
const Namespace = "mem"

// SQL has the lines that the database needs of this family, by the function that gets the line. The
// functions of families are in migrations/0001_database.sql.
var SQL = map[string]string{
	"is_address":       `when 'mem' then octet_length(address) = 45 and address ~ '^m[0-9a-f]+$'`,
	"read_signed":      `when 'mem' then public.mem_signed_call(raw)`,
	"placeholder_call": `when 'mem' then address::bytea || decode(repeat('00', 34), 'hex')`,
}

// SignedCall is the function that reads the family's signed bytes in the database.
const SignedCall = `
create function mem_signed_call(raw bytea, out chain bigint, out nonce bigint, out call_at integer, out call_size integer) language plpgsql immutable as $$
begin
  if coalesce(octet_length(raw), 0) < 216 or get_byte(raw, 0) <> 77 then return; end if;
  chain := ('x' || encode(substr(raw, 2, 8), 'hex'))::bit(64)::bigint;
  nonce := ('x' || encode(substr(raw, 10, 8), 'hex'))::bit(64)::bigint;
  call_at := 42;
  call_size := 79 + 256 * get_byte(raw, 118) + get_byte(raw, 119);
end $$`

// Family is the family of these chains.
type Family struct {
	Chain *Chain // whose nodes it opens
}

var _ chain.Family = Family{}

// Namespace returns [Namespace].
func (Family) Namespace() string { return Namespace }

// AddressForm describes an address for callers.
func (Family) AddressForm() string { return "m<40 hex digits and 4 of a checksum>" }

// Open opens a node of the family's chain.
func (f Family) Open(o chain.NodeOptions) (chain.Node, error) { return f.Chain.Node(o), nil }

// The lengths of an address, in characters, and of its digits without the checksum.
const (
	addressSize = 45
	digitsSize  = 40
)

// AddressOf returns the address of a public key: m, the first 20 bytes of its SHA-256, and a checksum.
func AddressOf(key ed25519.PublicKey) txmanager.Address {
	sum := sha256.Sum256(key)
	digits := hex.EncodeToString(sum[:digitsSize/2])
	return txmanager.Address("m" + digits + checksum(digits))
}

func checksum(digits string) string {
	sum := sha256.Sum256([]byte(digits))
	return hex.EncodeToString(sum[:2])
}

// ParseAccount reads an address in any letter case. The checksum must be right.
func (Family) ParseAccount(text string) (txmanager.Address, error) {
	lower := strings.ToLower(text)
	digits, ok := strings.CutPrefix(lower, "m")
	if _, err := hex.DecodeString(digits); !ok || err != nil || len(lower) != addressSize {
		return "", fmt.Errorf("%q is not an address: want m and 44 hex digits", text)
	}
	if digits[digitsSize:] != checksum(digits[:digitsSize]) {
		return "", fmt.Errorf("%q has a wrong checksum", text)
	}
	return txmanager.Address(lower), nil
}

// ParseAddress is [Family.ParseAccount] with the port's error.
func (f Family) ParseAddress(text string) (txmanager.Address, error) {
	a, err := f.ParseAccount(text)
	if err != nil {
		return "", invalid("address", err)
	}
	return a, nil
}

// Unpayable returns "": each address can be paid.
func (Family) Unpayable(txmanager.Address) string { return "" }

func invalid(field string, problem error) error {
	return &chain.FieldError{Field: field, Code: chain.CodeInvalidField, Problem: problem.Error()}
}

// payload is a caller's payload. In canonical form the fee has the name that policies read.
type payload struct {
	To    string `json:"to"`
	Value string `json:"value"`
	Data  string `json:"data,omitempty"`         // hex
	Fee   string `json:"fee,omitempty"`          // as the caller writes it
	Price string `json:"maxFeePerGas,omitempty"` // as it is stored
}

// ParsePayload reads {"to", "value", "data"?, "fee"?}.
func (f Family) ParsePayload(raw json.RawMessage) (canonical []byte, fingerprint [32]byte, err error) {
	p, err := readPayload(raw)
	if err != nil {
		return nil, fingerprint, err
	}
	if p.Fee != "" {
		p.Fee, p.Price = "", p.Fee
	}
	to, err := f.ParseAccount(p.To)
	if err != nil {
		return nil, fingerprint, invalid("payload.to", err)
	}
	p.To = to.String()
	if canonical, err = json.Marshal(p); err != nil {
		return nil, fingerprint, err
	}
	_, err = f.StoredCall(canonical)
	return canonical, sha256.Sum256(canonical), err
}

func readPayload(raw []byte) (p payload, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, &chain.FieldError{Field: "payload", Code: chain.CodeInvalidJSON, Problem: err.Error()}
	}
	return p, nil
}

// StoredCall reads a canonical payload.
func (f Family) StoredCall(canonical []byte) (c txmanager.Call, err error) {
	p, err := readPayload(canonical)
	if err != nil {
		return c, err
	}
	if c.Value, err = amount("payload.value", p.Value); err != nil {
		return c, err
	}
	if p.Price != "" {
		if c.FeeCapWei, err = amount("payload.fee", p.Price); err != nil {
			return c, err
		}
	}
	if c.Data, err = hex.DecodeString(strings.TrimPrefix(p.Data, "0x")); err != nil {
		return c, invalid("payload.data", err)
	}
	c.To = new(txmanager.Address(p.To))
	return c, checkCall(c)
}

func amount(field, text string) (*big.Int, error) {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.String() != text || n.Sign() < 0 || n.BitLen() > 256 {
		return nil, invalid(field, fmt.Errorf("%q is no amount", text))
	}
	return n, nil
}

func checkCall(c txmanager.Call) error {
	if c.To == nil {
		return invalid("payload.to", errors.New("want an account: the chain has no contracts"))
	}
	if a, err := (Family{}).ParseAccount(c.To.String()); err != nil || a != *c.To {
		return invalid("payload.to", fmt.Errorf("%q is not an address in canonical form", c.To.String()))
	}
	if len(c.Data) >= 1<<16 {
		return invalid("payload.data", fmt.Errorf("%d bytes: want fewer than %d", len(c.Data), 1<<16))
	}
	return nil
}

// ParseFunction refuses every text: the chain has no contracts.
func (Family) ParseFunction(string) (string, error) { return "", errNoContracts }

var errNoContracts = errors.New("the chain has no contracts and no payouts")

// PaymentPayload refuses: payouts go to chains of the EVM.
func (Family) PaymentPayload(*txmanager.Address, txmanager.Address, *big.Int, uint64) ([]byte, error) {
	return nil, errNoContracts
}

// ReadProof refuses, as [Family.PaymentPayload].
func (Family) ReadProof([]byte) (chain.PaymentProof, error) {
	return chain.PaymentProof{}, errNoContracts
}
