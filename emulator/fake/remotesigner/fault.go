package remotesigner

import (
	"crypto/ecdsa"
	"io"
	"math/big"
	"net/http"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Fault is one kind of wrong answer.
type Fault int

// The faults. None answers correctly.
const (
	None             Fault = iota
	AnotherNonce           // signs another nonce
	AnotherChain           // signs for another chain
	AnotherValue           // signs another value
	AnotherRecipient       // signs another recipient
	AnotherData            // signs other data
	MoreGas                // signs more gas
	MoreFee                // signs a higher fee cap
	MoreTip                // signs a higher tip
	AccessList             // adds an access list
	HighS                  // signs with the higher s: valid, but no node takes it
	LegacyType             // signs a legacy transaction with the same fields
	AnotherKey             // signs with another key
	NoList                 // offers no list of accounts
	NotJSON                // answers with HTML
	NoResult               // answers without a result
	Broken                 // status 500, without an answer
	BrokenAnswer           // status 500 with the correct answer
	BothAnswers            // the correct answer and an error
	QuotedToken            // an error that quotes the token
	Elsewhere              // a redirect
	Endless                // an answer that never stops
	CutOff                 // closes the connection without an answer
	Hanging                // no answer until the fault changes
)

const elsewhere = "/elsewhere"

// replaceAnswer serves the fault if it replaces the whole answer, and reports whether it did.
func (f Fault) replaceAnswer(w http.ResponseWriter, r *http.Request, release <-chan struct{}) bool {
	switch f {
	case NotJSON:
		_, _ = io.WriteString(w, "<html>signed</html>")
	case NoResult:
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":null}`)
	case Broken:
		w.WriteHeader(http.StatusInternalServerError)
	case Elsewhere:
		if r.URL.Path == elsewhere { // the redirected request is answered normally
			return false
		}
		http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
	case Endless:
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return true
			}
		}
	case CutOff:
		panic(http.ErrAbortHandler)
	case Hanging:
		select {
		case <-r.Context().Done():
		case <-release:
		}
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

// change changes the transaction or the key, if the fault does.
func (f Fault) change(key *ecdsa.PrivateKey, tx *types.DynamicFeeTx) (*ecdsa.PrivateKey, types.TxData) {
	switch f {
	case AnotherNonce:
		tx.Nonce++
	case AnotherChain:
		tx.ChainID = new(big.Int).Add(tx.ChainID, big.NewInt(1))
	case AnotherValue:
		tx.Value = new(big.Int).Add(tx.Value, big.NewInt(1))
	case AnotherRecipient:
		tx.To = &common.Address{8}
	case AnotherData:
		tx.Data = append([]byte{1}, tx.Data...)
	case MoreGas:
		tx.Gas++
	case MoreFee:
		tx.GasFeeCap = new(big.Int).Add(tx.GasFeeCap, big.NewInt(1))
	case MoreTip:
		tx.GasTipCap = new(big.Int).Add(tx.GasTipCap, big.NewInt(1))
	case AccessList:
		tx.AccessList = types.AccessList{{Address: common.Address{8}}}
	case LegacyType:
		return key, legacyOf(tx)
	case AnotherKey:
		if other, err := crypto.GenerateKey(); err == nil {
			key = other
		}
	}
	return key, tx
}

// legacyOf returns the legacy transaction with the same fields. Its price is the fee cap.
func legacyOf(tx *types.DynamicFeeTx) *types.LegacyTx {
	return &types.LegacyTx{Nonce: tx.Nonce, To: tx.To, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, GasPrice: tx.GasFeeCap}
}

// sign signs tx, with the higher s for HighS.
func (f Fault) sign(key *ecdsa.PrivateKey, tx types.TxData, chainID *big.Int) (*types.Transaction, error) {
	by := types.LatestSignerForChainID(chainID)
	unsigned := types.NewTx(tx)
	signature, err := crypto.Sign(by.Hash(unsigned).Bytes(), key)
	if err != nil {
		return nil, err
	}
	if f == HighS {
		s := new(big.Int).SetBytes(signature[32:64])
		s.Sub(crypto.S256().Params().N, s).FillBytes(signature[32:64])
		signature[64] ^= 1
	}
	return unsigned.WithSignature(by, signature)
}
