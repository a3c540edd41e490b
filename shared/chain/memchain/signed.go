package memchain

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// A signed transaction is
//
//	"M", chain id (8 bytes), nonce (8), gas (8), fee (16), receiver (45), value (32), size of the data (2), data,
//	public key (32), signature (64)
//
// with big-endian numbers. The call is from the receiver to the data.
const (
	callAt = 1 + 3*8 + 16
	dataAt = callAt + addressSize + 32 + 2
)

// Keys sign for accounts. They implement a signer's service.
type Keys map[txmanager.Submitter]ed25519.PrivateKey

// Add makes the key number i of a chain, and returns its account.
func (k Keys) Add(chainID uint64, i int) txmanager.Submitter {
	seed := sha256.Sum256(fmt.Appendf(nil, "key %d", i))
	key := ed25519.NewKeyFromSeed(seed[:])
	s := txmanager.NewSubmitter(Namespace, chainID, AddressOf(key.Public().(ed25519.PublicKey)))
	k[s] = key
	return s
}

// Sign implements [txmanager.Signer].
func (k Keys) Sign(_ context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (signed txmanager.Signed, err error) {
	key, ok := k[s]
	if !ok {
		return signed, fmt.Errorf("no key for %s", s)
	}
	raw, err := encode(tx)
	if err != nil {
		return signed, err
	}
	raw = append(raw, key.Public().(ed25519.PublicKey)...)
	raw = append(raw, ed25519.Sign(key, raw)...)
	return txmanager.Signed{Hash: sha256.Sum256(raw), Raw: raw}, nil
}

// InProcess implements [txmanager.Signer].
func (Keys) InProcess(txmanager.Submitter) bool { return true }

// Check reports whether the account has a key.
func (k Keys) Check(_ context.Context, s txmanager.Submitter) error {
	if _, ok := k[s]; !ok {
		return fmt.Errorf("no key for %s", s)
	}
	return nil
}

func encode(tx txmanager.Unsigned) ([]byte, error) {
	switch {
	case !tx.Legacy || tx.TipCapWei.Cmp(tx.FeeCapWei) != 0:
		return nil, errors.New("the chain's fee is one number")
	case tx.FeeCapWei.BitLen() > 128 || tx.Value.BitLen() > 256 || tx.To == nil || len(*tx.To) != addressSize || len(tx.Data) >= 1<<16:
		return nil, errors.New("the transaction does not fit the encoding")
	}
	raw := []byte("M")
	for _, n := range []uint64{tx.ChainID, tx.Nonce, tx.Gas} {
		raw = binary.BigEndian.AppendUint64(raw, n)
	}
	raw = append(raw, tx.FeeCapWei.FillBytes(make([]byte, 16))...)
	raw = append(raw, *tx.To...)
	raw = append(raw, tx.Value.FillBytes(make([]byte, 32))...)
	raw = binary.BigEndian.AppendUint16(raw, uint16(len(tx.Data)))
	return append(raw, tx.Data...), nil
}

// decode reads a signed transaction. Its signature is verified.
func decode(raw []byte) (from txmanager.Address, tx txmanager.Unsigned, signed txmanager.Signed, err error) {
	invalid := errors.New("the bytes are no signed transaction")
	if len(raw) < dataAt+ed25519.PublicKeySize+ed25519.SignatureSize || raw[0] != 'M' {
		return from, tx, signed, invalid
	}
	end := len(raw) - ed25519.SignatureSize
	key, sized := ed25519.PublicKey(raw[end-ed25519.PublicKeySize:end]), int(binary.BigEndian.Uint16(raw[dataAt-2:]))
	if dataAt+sized+ed25519.PublicKeySize != end || !ed25519.Verify(key, raw[:end], raw[end:]) {
		return from, tx, signed, invalid
	}
	fee := new(big.Int).SetBytes(raw[callAt-16 : callAt])
	to := txmanager.Address(raw[callAt : callAt+addressSize])
	tx = txmanager.Unsigned{
		ChainID: binary.BigEndian.Uint64(raw[1:]), Nonce: binary.BigEndian.Uint64(raw[9:]), Gas: binary.BigEndian.Uint64(raw[17:]),
		To: &to, Value: new(big.Int).SetBytes(raw[dataAt-34 : dataAt-2]), Data: raw[dataAt : dataAt+sized],
		Legacy: true, FeeCapWei: fee, TipCapWei: fee,
	}
	return AddressOf(key), tx, txmanager.Signed{Hash: sha256.Sum256(raw), Raw: raw}, nil
}

// Verify implements [chain.Family].
func (Family) Verify(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error) {
	want, err := encode(tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	from, _, signed, err := decode(raw)
	if err == nil && (from != s.Address() || tx.ChainID != s.ChainID() || !bytes.HasPrefix(raw, want)) {
		err = fmt.Errorf("the bytes are not the transaction that %s was asked to sign", s)
	}
	return signed, err
}
