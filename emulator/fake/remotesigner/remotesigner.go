// Package remotesigner is the emulator's signing service. It signs by eth_signTransaction over HTTP with
// its own keys, for callers with its token.
//
// For tests it also answers wrongly in one chosen way; see [Fault].
package remotesigner

import (
	"crypto/ecdsa"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/faultswitch"
	"github.com/fencepost/fencepost/emulator/stack/loopback"
)

// Options describe a service.
type Options struct {
	Token string              // the bearer token required; "": none
	Keys  []*ecdsa.PrivateKey // of its accounts

	// Clef makes it answer account_signTransaction with an object, as clef does; false: eth_signTransaction with hex
	// digits, as Web3signer does.
	Clef bool
}

// Server is a signing service and an [http.Handler]. Several goroutines can use it.
type Server struct {
	options Options
	keys    map[common.Address]*ecdsa.PrivateKey

	*loopback.Server
	*faultswitch.Switch[Fault]
}

// Start serves on a free port of 127.0.0.1 until [Server.Close].
func Start(o Options) (_ *Server, err error) {
	s := &Server{options: o, keys: map[common.Address]*ecdsa.PrivateKey{}, Switch: faultswitch.New[Fault]()}
	for _, key := range o.Keys {
		s.keys[crypto.PubkeyToAddress(key.PublicKey)] = key
	}
	if s.Server, err = loopback.Serve("", s); err != nil {
		return nil, fmt.Errorf("listen as a remote signer: %w", err)
	}
	return s, nil
}

// Close ends serving at once and releases requests that hang.
func (s *Server) Close() error {
	s.SetFault(None)
	return s.Server.Close()
}

type call struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if want := "Bearer " + s.options.Token; s.options.Token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(want)) != 1 {
		http.Error(w, "send the service's bearer token", http.StatusUnauthorized)
		return
	}
	var c call
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&c); err != nil {
		http.Error(w, "not JSON-RPC", http.StatusBadRequest)
		return
	}
	if len(c.Params) == 1 {
		s.Record(string(c.Params[0]))
	}
	fault, release := s.Current()
	if fault.replaceAnswer(w, r, release) {
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": c.ID}
	if result, refusal := s.answer(c, fault); refusal != nil {
		answer["error"] = refusal
	} else {
		answer["result"] = result
	}
	w.Header().Set("Content-Type", "application/json")
	switch fault {
	case BothAnswers:
		answer["error"] = refusal{-32000, "not approved"}
	case QuotedToken:
		answer["error"] = refusal{-32000, "not approved for " + r.Header.Get("Authorization")}
	case BrokenAnswer:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_ = json.NewEncoder(w).Encode(answer) // the caller may have left
}

type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (s *Server) answer(c call, fault Fault) (any, *refusal) {
	sign, list := "eth_signTransaction", "eth_accounts"
	if s.options.Clef {
		sign, list = "account_signTransaction", "account_list"
	}
	switch {
	case c.Method == list && fault != NoList:
		return slices.Collect(maps.Keys(s.keys)), nil
	case c.Method != sign || len(c.Params) != 1:
		return nil, &refusal{-32601, "the method " + c.Method + " does not exist"}
	}
	var args arguments
	if err := json.Unmarshal(c.Params[0], &args); err != nil {
		return nil, &refusal{-32602, err.Error()}
	}
	key := s.keys[args.From]
	if key == nil {
		return nil, &refusal{-32000, "no key for given address or file"}
	}
	raw, err := args.sign(key, fault)
	switch {
	case err != nil:
		return nil, &refusal{-32000, err.Error()}
	case s.options.Clef:
		return map[string]any{"raw": hexutil.Bytes(raw), "tx": map[string]any{}}, nil
	}
	return hexutil.Bytes(raw), nil
}

type arguments struct {
	From    common.Address  `json:"from"`
	To      *common.Address `json:"to"`
	Gas     hexutil.Uint64  `json:"gas"`
	Price   *hexutil.Big    `json:"gasPrice"`
	FeeCap  *hexutil.Big    `json:"maxFeePerGas"`
	TipCap  *hexutil.Big    `json:"maxPriorityFeePerGas"`
	Value   *hexutil.Big    `json:"value"`
	Nonce   *hexutil.Uint64 `json:"nonce"`
	Data    hexutil.Bytes   `json:"data"`
	ChainID *hexutil.Big    `json:"chainId"`
}

func (a arguments) sign(key *ecdsa.PrivateKey, fault Fault) ([]byte, error) {
	legacy := a.Price != nil && a.FeeCap == nil && a.TipCap == nil
	switch lacks := a.Value == nil || a.Nonce == nil || a.ChainID == nil; {
	case legacy && lacks:
		return nil, errors.New("want nonce, chainId, value and gasPrice")
	case !legacy && (lacks || a.FeeCap == nil || a.TipCap == nil):
		return nil, errors.New("want nonce, chainId, value, maxFeePerGas and maxPriorityFeePerGas")
	}
	inner := &types.DynamicFeeTx{
		ChainID: (*big.Int)(a.ChainID), Nonce: uint64(*a.Nonce), To: a.To, Value: (*big.Int)(a.Value), Data: a.Data,
		Gas: uint64(a.Gas), GasFeeCap: (*big.Int)(a.FeeCap), GasTipCap: (*big.Int)(a.TipCap),
	}
	var tx types.TxData
	if legacy { // no fault changes it
		inner.GasFeeCap, fault = (*big.Int)(a.Price), None
		tx = legacyOf(inner)
	} else {
		key, tx = fault.change(key, inner)
	}
	signed, err := fault.sign(key, tx, inner.ChainID)
	if err != nil {
		return nil, err
	}
	return signed.MarshalBinary()
}
