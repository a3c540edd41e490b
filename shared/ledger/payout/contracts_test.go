package payout_test

import (
	"encoding/hex"
	"slices"
	"strings"
)

// The contracts of these tests, assembled by hand. Each takes any call for
// transfer(address to, uint256 amount), whose arguments lie in the call's data at 4
// and at 36.
//
// Source: https://www.evm.codes (opcodes of Shanghai)

// pay notes the amount for the address, tells of it by the event, and returns true.
const pay = "" +
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

// liar returns false, does nothing and does not revert.
const liar = "5f5f5260205ff3" // memory[0] = 0; return memory[0:32]

// switched is pay that reverts once anybody has called it without data.
const switched = "" +
	"36600957" + // with data: jump to 9
	"60015f5500" + // storage[0] = 1; stop
	"5b5f5415601357" + // 9: if storage[0] is 0 jump to 19
	"5f5ffd" + // revert
	"5b" + pay // 19

// skimming is pay that passes on one less than it was told to, and says so.
var skimming = strings.Replace(pay, "602435", "6001602435"+"03", 1) // amount - 1

func code(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}

// deploying is the code that puts code on the chain.
func deploying(code []byte) []byte {
	return slices.Concat([]byte{
		0x61, byte(len(code) >> 8), byte(len(code)), // push the length
		0x80, 0x60, 0x0a, 0x5f, 0x39, // memory[0:] = the code from 10 on
		0x5f, 0xf3, // return it
	}, code)
}
