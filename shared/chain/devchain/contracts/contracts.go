// Package contracts has small contracts for development chains, assembled by hand, and deploys them.
//
// Each accepts any call with data for transfer(address to, uint256 amount). The arguments are at offsets 4
// and 36 of the call's data.
//
// Source: https://www.evm.codes (opcodes of Shanghai)
package contracts

import (
	"encoding/hex"
	"strings"
)

// token adds the amount to the address's balance, emits the event, and returns true.
const token = "" +
	"602435" + // push 36, calldataload: amount
	"5f52" + //   memory[0] = amount
	"600435" + // push 4, calldataload: to
	"8054" + //   dup, sload: to, balance
	"60243501" + // to, balance + amount
	"8155" + //   dup2, sstore: balance of to
	"33" + //     to, caller
	"7fddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef" + // Transfer(address,address,uint256)
	"60205fa3" + // log3 of memory[0:32] with event, caller, to
	"60015f5260205ff3" // return 1, as 32 bytes

// inEarnest continues after its end if the gas price is 0, as in an estimate, and reverts otherwise.
const inEarnest = "" +
	"3a15600857" + // gas price 0: jump to 8
	"5f5ffd" + //     revert
	"5b"

// Token adds the amount to the address's balance, emits Transfer, and returns true. Any caller can move
// tokens from any account, because it checks no balance. The storage has the balance of an address under that address.
func Token() []byte { return code(token) }

// Liar returns false, does nothing and does not revert.
func Liar() []byte { return code("5f5f5260205ff3") } // memory[0] = 0; return memory[0:32]

// Skimming is a [Token] that passes on one less than it was asked, and reports it in the event.
func Skimming() []byte {
	return code(strings.Replace(token, "602435", "6001602435"+"03", 1)) // amount - 1
}

// Switched is a [Token] that reverts after the first call without data.
func Switched() []byte {
	return code("" +
		"36600957" + // with data: jump to 9
		"60015f5500" + // storage[0] = 1; stop
		"5b5f5415601357" + // 9: if storage[0] is 0 jump to 19
		"5f5ffd" + // revert
		"5b" + token) // 19
}

// Reverting is a [Token] whose estimates succeed and whose transactions revert.
func Reverting() []byte { return code(inEarnest + token) }

// Ungrateful accepts the chain's coin in estimates, and reverts in transactions.
func Ungrateful() []byte { return code(inEarnest + "00") } // stop

// Closed reverts every call, estimates included.
func Closed() []byte { return code("5f5ffd") }

func code(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}
