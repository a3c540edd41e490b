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

// Fault is one way to answer wrongly.
type Fault int

// The faults. None is all well.
const (
	None            Fault = iota
	AnotherNonce          // is signed
	AnotherChain          // is signed for
	AnotherValue          // is signed
	AnotherReceiver       // is signed
	AnotherData           // is signed
	MoreGas               // is signed
	MoreFee               // is signed: the cap
	MoreTip               // is signed
	AccessList            // is signed, on top
	HighS                 // is in the signature: as good, but no node takes it
	LegacyType            // is signed, with the same fields
	AnotherKey            // signs
	NoList                // of accounts is offered
	NotJSON               // is the answer
	NoResult              // is in the answer
	Broken                // status 500, without an answer
	BrokenAnswer          // status 500, and the right answer
	BothAnswers           // the right one, and an error
	ToldToken             // an error, which quotes the token
	Elsewhere             // a redirect
	Endless               // an answer that never stops
	CutOff                // the connection, in place of an answer
	Hanging               // no answer, until the fault is another
)

// elsewhere is where a redirect leads.
const elsewhere = "/elsewhere"

// instead does what a fault does in place of an answer, and says whether it did.
func (f Fault) instead(w http.ResponseWriter, r *http.Request, release <-chan struct{}) bool {
	switch f {
	case NotJSON:
		_, _ = io.WriteString(w, "<html>signed</html>")
	case NoResult:
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":null}`)
	case Broken:
		w.WriteHeader(http.StatusInternalServerError)
	case Elsewhere:
		if r.URL.Path == elsewhere { // who comes here is answered as if nothing were wrong
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

// spoil has another transaction signed than was asked for, or by another key.
func (f Fault) spoil(key *ecdsa.PrivateKey, tx *types.DynamicFeeTx) (*ecdsa.PrivateKey, types.TxData) {
	switch f {
	case AnotherNonce:
		tx.Nonce++
	case AnotherChain:
		tx.ChainID = new(big.Int).Add(tx.ChainID, big.NewInt(1))
	case AnotherValue:
		tx.Value = new(big.Int).Add(tx.Value, big.NewInt(1))
	case AnotherReceiver:
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
		return key, &types.LegacyTx{Nonce: tx.Nonce, To: tx.To, Value: tx.Value, Data: tx.Data, Gas: tx.Gas, GasPrice: tx.GasFeeCap}
	case AnotherKey:
		if other, err := crypto.GenerateKey(); err == nil {
			key = other
		}
	}
	return key, tx
}

// sign signs tx, by the higher s where that is the fault.
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
