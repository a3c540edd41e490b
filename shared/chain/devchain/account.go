package devchain

import (
	"crypto/ecdsa"
	"encoding/binary"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// seed derives every development key. The keys are public: they must hold value on development chains only.
const seed = "fencepost development account"

// Account is a key that the genesis block funds with 1,000,000 ether.
type Account struct {
	Key     *ecdsa.PrivateKey
	Address txmanager.Address
}

// DevAccounts derives the first n development accounts. They are the same on every machine and in every run.
func DevAccounts(n int) []Account {
	accounts := make([]Account, n)
	for i := range accounts {
		accounts[i] = devAccount(uint64(i))
	}
	return accounts
}

// devAccount hashes seed and index. It hashes again in the rare case that the hash is not a key on the curve.
func devAccount(index uint64) Account {
	digest := crypto.Keccak256(binary.BigEndian.AppendUint64([]byte(seed), index))
	for {
		key, err := crypto.ToECDSA(digest)
		if err == nil {
			return Account{Key: key, Address: eip155.Address(crypto.PubkeyToAddress(key.PublicKey))}
		}
		digest = crypto.Keccak256(digest)
	}
}
