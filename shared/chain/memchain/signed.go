package memchain

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// call is a signed transaction up to its data. The data, the public key and the signature follow. Numbers are
// big-endian. The database reads the call from To to the data.
type call struct {
	Kind              byte // 'M'
	Chain, Nonce, Gas uint64
	Fee               [16]byte
	To                [addressSize]byte
	Value             [32]byte
	Size              uint16 // of the data
}

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
func (k Keys) Sign(ctx context.Context, s txmanager.Submitter, tx txmanager.Unsigned) (txmanager.Signed, error) {
	raw, err := encode(tx)
	if err = cmp.Or(k.Check(ctx, s), err); err != nil {
		return txmanager.Signed{}, err
	}
	raw = append(raw, k[s].Public().(ed25519.PublicKey)...)
	raw = append(raw, ed25519.Sign(k[s], raw)...)
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
	c := call{Kind: 'M', Chain: tx.ChainID, Nonce: tx.Nonce, Gas: tx.Gas, To: [addressSize]byte([]byte(*tx.To)), Size: uint16(len(tx.Data))}
	tx.FeeCapWei.FillBytes(c.Fee[:])
	tx.Value.FillBytes(c.Value[:])
	raw, err := binary.Append(nil, binary.BigEndian, c)
	return append(raw, tx.Data...), err
}

// decode reads a signed transaction. Its signature is verified.
func decode(raw []byte) (transaction, error) {
	var c call
	dataAt, err := binary.Decode(raw, binary.BigEndian, &c)
	dataEnd := dataAt + int(c.Size)
	signatureAt := dataEnd + ed25519.PublicKeySize
	if err != nil || c.Kind != 'M' || len(raw) != signatureAt+ed25519.SignatureSize || !ed25519.Verify(raw[dataEnd:signatureAt], raw[:signatureAt], raw[signatureAt:]) {
		return transaction{}, errors.New("the bytes are no signed transaction")
	}
	fee := new(big.Int).SetBytes(c.Fee[:])
	tx := txmanager.Unsigned{
		ChainID: c.Chain, Nonce: c.Nonce, Gas: c.Gas, To: new(txmanager.Address(c.To[:])), Value: new(big.Int).SetBytes(c.Value[:]),
		Data: raw[dataAt:dataEnd], Legacy: true, FeeCapWei: fee, TipCapWei: fee,
	}
	return transaction{txmanager.Signed{Hash: sha256.Sum256(raw), Raw: raw}, AddressOf(raw[dataEnd:signatureAt]), tx}, nil
}

// Verify implements [chain.Family].
func (Family) Verify(s txmanager.Submitter, tx txmanager.Unsigned, raw []byte) (txmanager.Signed, error) {
	want, err := encode(tx)
	if err != nil {
		return txmanager.Signed{}, err
	}
	sent, err := decode(raw)
	if err == nil && (sent.from != s.Address() || tx.ChainID != s.ChainID() || !bytes.HasPrefix(raw, want)) {
		err = fmt.Errorf("the bytes are not the transaction that %s was asked to sign", s)
	}
	return sent.Signed, err
}
