package evm

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

const (
	lowerAddress = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed" // EIP-55's first example
	mixedAddress = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
	to           = `"to":"` + lowerAddress + `"`
	transferData = "0xa9059cbb0000000000000000000000005aaeb6053f3e94c9b9a09f33669435e7ef1beaed" +
		"00000000000000000000000000000000000000000000000000000000000003e8"
)

var goodPayloads = []struct{ name, raw, canonical string }{
	{"nothing but to", `{` + to + `}`, `{` + to + `}`},
	{"every field, any order and spacing",
		` { "maxPriorityFeePerGas" : "1", "gas":"50000", "data":"0xAB", "value":"0", "maxFeePerGas":"2", "to" : "` + mixedAddress + `" } `,
		`{` + to + `,"value":"0","data":"0xab","gas":"50000","maxFeePerGas":"2","maxPriorityFeePerGas":"1"}`},
	{"upper case address", `{"to":"0x` + strings.ToUpper(lowerAddress[2:]) + `"}`, `{` + to + `}`},
	{"deploy", `{"data":"0x60006000fd"}`, `{"data":"0x60006000fd"}`},
	{"the most gas", `{` + to + `,"maxGas":30000}`, `{` + to + `,"maxGas":"30000"}`},
	{"gas as a number", `{` + to + `,"gas":30000}`, `{` + to + `,"gas":"30000"}`},
	{"the largest value", `{` + to + `,"value":"` + maxUint256 + `"}`, `{` + to + `,"value":"` + maxUint256 + `"}`},
	{"empty data", `{` + to + `,"data":"0x"}`, `{` + to + `,"data":"0x"}`},
	{"tip alone", `{` + to + `,"maxPriorityFeePerGas":"7"}`, `{` + to + `,"maxPriorityFeePerGas":"7"}`},
	{"call", `{` + to + `,"function":"transfer(address,uint256)","args":["` + mixedAddress + `","1000"]}`,
		`{` + to + `,"data":"` + transferData + `"}`},
	{"call without arguments", `{` + to + `,"function":"pause()"}`, `{` + to + `,"data":"0x8456cb59"}`},
}

const maxUint256 = "115792089237316195423570985008687907853269984665640564039457584007913129639935"

// Each accepted payload has one canonical form, with the fingerprint of its bytes. Read again it gives
// the same form and the same call.
func TestParsePayload(t *testing.T) {
	t.Parallel()
	for _, c := range goodPayloads {
		canonical, fingerprint, err := Family{}.ParsePayload(json.RawMessage(c.raw))
		check.OK(t)(err)
		check.Same(t, c.name+": canonical form", string(canonical), c.canonical)
		check.Equal(t, c.name+": fingerprint", fingerprint, sha256.Sum256([]byte(c.canonical)))
		checkStored(t, canonical)
	}
}

// checkStored requires canonical to be its own canonical form, and the same call after a JSON column
// has changed its order and spacing.
func checkStored(t *testing.T, canonical []byte) {
	t.Helper()
	again, _, err := Family{}.ParsePayload(canonical)
	if err != nil || string(again) != string(canonical) {
		t.Errorf("%s: read again got %s, %v, want itself", canonical, again, err)
	}
	call := check.Value(new(Connector).ParsePayload(canonical))(t)
	var fields map[string]string
	check.OK(t)(json.Unmarshal(canonical, &fields))
	column, err := json.MarshalIndent(fields, "", " ") // sorts the names
	check.OK(t)(err)
	fromColumn := check.Value(new(Connector).ParsePayload(column))(t)
	check.Same(t, fmt.Sprintf("%s: call from a JSON column", canonical), fromColumn, call, check.BigInts)
}

func TestStoredCallIsReadBack(t *testing.T) {
	t.Parallel()
	call, err := new(Connector).ParsePayload([]byte(`{` + to + `,"value":"5","data":"0xab","gas":"50000","maxFeePerGas":"2","maxPriorityFeePerGas":"1"}`))
	check.OK(t)(err)
	address := eip155.Address(common.HexToAddress(lowerAddress))
	want := txmanager.Call{To: &address, Value: big.NewInt(5), Data: []byte{0xab}, Gas: 50_000, FeeCapWei: big.NewInt(2), TipCapWei: big.NewInt(1)}
	check.Same(t, "call", call, want, check.BigInts)
	bare, err := new(Connector).ParsePayload([]byte(`{"data":"0x00"}`))
	if err != nil || bare.To != nil || bare.Value.Sign() != 0 || bare.Gas != 0 || bare.FeeCapWei != nil || bare.TipCapWei != nil {
		t.Errorf("deployment: got %+v, %v, want no account, no value, and gas and fees left open", bare, err)
	}
	for _, stored := range []string{
		`{` + to + `,"function":"pause()"}`, `{` + to + `,"gas":50000}`, `{"to":"` + mixedAddress + `"}`, `{` + to + `,"data":"0xAB"}`,
		`{}`, ``, `{` + to + `} x`,
	} {
		if _, err := new(Connector).ParsePayload([]byte(stored)); err == nil {
			t.Errorf("%s: got nil, want an error: ParsePayload does not make it", stored)
		}
	}
}

// A function call and its data are the same request; a value of 0 and no value are two.
func TestFingerprintFollowsTheMeaning(t *testing.T) {
	t.Parallel()
	fingerprint := func(raw string) [32]byte {
		_, f, err := Family{}.ParsePayload(json.RawMessage(raw))
		check.OK(t)(err)
		return f
	}
	called := fingerprint(`{` + to + `,"function":"transfer(address,uint256)","args":["` + lowerAddress + `",1000]}`)
	check.Equal(t, "fingerprint of a call, and of its data", called, fingerprint(`{"data":"`+transferData+`","to":"`+mixedAddress+`"}`))
	check.Equal(t, "value 0 and no value: one fingerprint", fingerprint(`{`+to+`,"value":"0"}`) == fingerprint(`{`+to+`}`), false)
}

var badPayloads = []struct{ raw, field, code, says string }{
	{``, "payload", chain.CodeInvalidJSON, "object"},
	{`[]`, "payload", chain.CodeInvalidJSON, "object"},
	{`null`, "payload", chain.CodeInvalidJSON, "object"},
	{`{` + to, "payload", chain.CodeInvalidJSON, "object"},
	{`{` + to + `} {}`, "payload", chain.CodeInvalidJSON, "nothing after"},
	{`{` + to + `,}`, "payload", chain.CodeInvalidJSON, ""},
	{"{" + to + ",\"data\":\"0x\xff\"}", "payload", chain.CodeInvalidJSON, "UTF-8"},
	{`{` + to + `,"nonce":"1"}`, "payload.nonce", chain.CodeUnsupportedField, "want only to, value"},
	{`{` + to + `,"Value":"1"}`, "payload.Value", chain.CodeUnsupportedField, "want only to, value"},
	{`{` + to + `,` + to + `}`, "payload.to", chain.CodeInvalidField, "once"},
	{`{"to":null,"data":"0x00"}`, "payload.to", chain.CodeInvalidField, "leave the field out"},
	{`{}`, "payload.to", chain.CodeInvalidField, "deploy"},
	{`{"data":"0x"}`, "payload.to", chain.CodeInvalidField, "deploy"},
	{`{"to":"0x12"}`, "payload.to", chain.CodeInvalidField, "40 hex digits"},
	{`{"to":7}`, "payload.to", chain.CodeInvalidField, "string"},
	{`{"to":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"}`, "payload.to", chain.CodeInvalidField, mixedAddress},
	{`{` + to + `,"value":1}`, "payload.value", chain.CodeInvalidField, "string"},
	{`{` + to + `,"value":"-1"}`, "payload.value", chain.CodeInvalidField, "wei"},
	{`{` + to + `,"value":"+1"}`, "payload.value", chain.CodeInvalidField, "wei"},
	{`{` + to + `,"value":"01"}`, "payload.value", chain.CodeInvalidField, "leading zeros"},
	{`{` + to + `,"value":"-0"}`, "payload.value", chain.CodeInvalidField, "wei"},
	{`{` + to + `,"value":" 1"}`, "payload.value", chain.CodeInvalidField, "spaces"},
	{`{` + to + `,"value":"1_000"}`, "payload.value", chain.CodeInvalidField, "wei"},
	{`{` + to + `,"value":"1e18"}`, "payload.value", chain.CodeInvalidField, "decimal"},
	{`{` + to + `,"value":"0x1"}`, "payload.value", chain.CodeInvalidField, "decimal"},
	{`{` + to + `,"value":""}`, "payload.value", chain.CodeInvalidField, "decimal"},
	{`{` + to + `,"value":"115792089237316195423570985008687907853269984665640564039457584007913129639936"}`, "payload.value", chain.CodeInvalidField, "2^256-1"},
	{`{` + to + `,"data":"ab"}`, "payload.data", chain.CodeInvalidField, "0x"},
	{`{` + to + `,"data":"0xabc"}`, "payload.data", chain.CodeInvalidField, "even"},
	{`{` + to + `,"data":"0x` + strings.Repeat("00", maxData+1) + `"}`, "payload.data", chain.CodeInvalidField, "at most"},
	{`{` + to + `,"data":"0x` + strings.Repeat("00", maxPayload) + `"}`, "payload", chain.CodeInvalidField, "at most"},
	{`{` + to + `,"gas":"20999"}`, "payload.gas", chain.CodeInvalidField, "at least 21000"},
	{`{` + to + `,"gas":50000.5}`, "payload.gas", chain.CodeInvalidField, "whole number"},
	{`{` + to + `,"gas":3e4}`, "payload.gas", chain.CodeInvalidField, "exponent"},
	{`{` + to + `,"gas":9007199254740993}`, "payload.gas", chain.CodeInvalidField, "rounded"},
	{`{` + to + `,"gas":"18446744073709551616"}`, "payload.gas", chain.CodeInvalidField, "2^64"},
	{`{` + to + `,"gas":"16777217"}`, "payload.gas", chain.CodeInvalidField, "EIP-7825"},
	{`{"data":"0x` + strings.Repeat("5b", maxInitcode+1) + `"}`, "payload.data", chain.CodeInvalidField, "EIP-3860"},
	{`{` + to + `,"maxGas":"16777217"}`, "payload.maxGas", chain.CodeInvalidField, "EIP-7825"},
	{`{` + to + `,"maxGas":"20999"}`, "payload.maxGas", chain.CodeInvalidField, "at least 21000"},
	{`{` + to + `,"maxGas":"50000","gas":50000}`, "payload.maxGas", chain.CodeInvalidField, "both given"},
	{`{` + to + `,"gas":true}`, "payload.gas", chain.CodeInvalidField, "whole number"},
	{`{` + to + `,"maxFeePerGas":"1","maxPriorityFeePerGas":"2"}`, "payload.maxPriorityFeePerGas", chain.CodeInvalidField, "at most"},
	{`{` + to + `,"args":[]}`, "payload.args", chain.CodeInvalidField, "both"},
	{`{` + to + `,"function":"f()","data":"0x"}`, "payload.data", chain.CodeInvalidField, "one of them"},
	{`{"function":"f()"}`, "payload.to", chain.CodeInvalidField, "contract to call"},
	{`{` + to + `,"function":"f"}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(uint)","args":["1"]}`, "payload.function", chain.CodeInvalidField, "uint256, not uint"},
	{`{` + to + `,"function":"f(uint7)","args":["1"]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(uint256 a)","args":["1"]}`, "payload.function", chain.CodeInvalidField, "no argument names"},
	{`{` + to + `,"function":"f(bool;bool)","args":[true,true]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(bool,)","args":[true]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(())","args":[[]]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(bool)g","args":[true]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(bytes33)","args":["0x"]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(bool[0])","args":[[]]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(bool[1000][1000])","args":[[]]}`, "payload.function", chain.CodeInvalidField, "1024"},
	{`{` + to + `,"function":"f(` + strings.Repeat("(", 20) + `bool` + strings.Repeat(")", 20) + `)","args":[]}`, "payload.function", chain.CodeInvalidField, "signature"},
	{`{` + to + `,"function":"f(bool)"}`, "payload.args", chain.CodeInvalidField, "want 1"},
	{`{` + to + `,"function":"f(bool)","args":{}}`, "payload.args", chain.CodeInvalidField, "array"},
	{`{` + to + `,"function":"f(bool,uint8)","args":[true,"256"]}`, "payload.args[1]", chain.CodeInvalidField, "uint8"},
	{`{` + to + `,"function":"f(int8)","args":["-129"]}`, "payload.args[0]", chain.CodeInvalidField, "int8"},
	{`{` + to + `,"function":"f(uint256)","args":["-1"]}`, "payload.args[0]", chain.CodeInvalidField, "range"},
	{`{` + to + `,"function":"f(bool)","args":["true"]}`, "payload.args[0]", chain.CodeInvalidField, "true or false"},
	{`{` + to + `,"function":"f(bool)","args":[null]}`, "payload.args[0]", chain.CodeInvalidField, "true or false"},
	{`{` + to + `,"function":"f(string)","args":[null]}`, "payload.args[0]", chain.CodeInvalidField, "string"},
	{`{` + to + `,"function":"f(bytes4)","args":["0xabcdef"]}`, "payload.args[0]", chain.CodeInvalidField, "want 4"},
	{`{` + to + `,"function":"f(address)","args":["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"]}`, "payload.args[0]", chain.CodeInvalidField, "EIP-55"},
	{`{` + to + `,"function":"f((bool,uint8[]))","args":[[true,["1","x"]]]}`, "payload.args[0][1][1]", chain.CodeInvalidField, "whole number"},
	{`{` + to + `,"function":"f(bool[2])","args":[[true]]}`, "payload.args[0]", chain.CodeInvalidField, "want 2"},
}

// A refusal names the field and the expected value.
func TestParsePayloadRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range badPayloads {
		shown := c.raw[:min(len(c.raw), 120)]
		_, _, err := Family{}.ParsePayload(json.RawMessage(c.raw))
		problem, ok := errors.AsType[*chain.FieldError](err)
		if !ok {
			t.Errorf("%s: got %v, want a chain.FieldError", shown, err)
		} else if problem.Field != c.field || problem.Code != c.code || !strings.Contains(problem.Problem, c.says) {
			t.Errorf("%s: got %s %s, want %s %s with %q", shown, problem.Code, problem, c.code, c.field, c.says)
		}
	}
}

// The encoded data decodes, by package abi, to the given arguments.
func TestEncodeCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ signature, args, inputs, want string }{
		{"f(int8,int256,uint64)", `["-128",-1,"18446744073709551615"]`, `[{"type":"int8"},{"type":"int256"},{"type":"uint64"}]`,
			`[-128,-1,18446744073709551615]`},
		{"f(bool,string,bytes,bytes4)", `[true,"hé","0x0102","0xdeadbeef"]`,
			`[{"type":"bool"},{"type":"string"},{"type":"bytes"},{"type":"bytes4"}]`, `[true,"hé","AQI=",[222,173,190,239]]`},
		{"f(uint256[],uint8[2][],bool[2])", `[["1","2"],[[1,2],[3,4]],[true,false]]`,
			`[{"type":"uint256[]"},{"type":"uint8[2][]"},{"type":"bool[2]"}]`, `[[1,2],[[1,2],[3,4]],[true,false]]`},
		{"f((address,uint256)[2],(string,(bool,bytes)[]))", `[[["` + lowerAddress + `","1"],["` + lowerAddress + `",2]],["x",[[true,"0x"],[false,"0x07"]]]]`,
			`[{"type":"tuple[2]","components":[{"name":"a","type":"address"},{"name":"b","type":"uint256"}]},` +
				`{"type":"tuple","components":[{"name":"a","type":"string"},{"name":"b","type":"tuple[]","components":[{"name":"a","type":"bool"},{"name":"b","type":"bytes"}]}]}]`,
			`[[{"a":"` + lowerAddress + `","b":1},{"a":"` + lowerAddress + `","b":2}],{"a":"x","b":[{"a":true,"b":""},{"a":false,"b":"Bw=="}]}]`},
	} {
		data := check.Value(encodeCall(c.signature, json.RawMessage(c.args)))(t)
		contract := check.Value(abi.JSON(strings.NewReader(`[{"type":"function","name":"f","inputs":` + c.inputs + `}]`)))(t)
		method := check.Value(contract.MethodById(data))(t) // by the selector
		values := check.Value(method.Inputs.Unpack(data[4:]))(t)
		got := check.Value(json.Marshal(values))(t)
		check.Same(t, c.signature, string(got), c.want)
	}
}

// Any input is refused with a field and a code of the API, or its canonical form passes
// TestParsePayload.
func FuzzParsePayload(f *testing.F) {
	for _, c := range goodPayloads {
		f.Add([]byte(c.raw))
	}
	for _, c := range badPayloads {
		f.Add([]byte(c.raw[:min(len(c.raw), 4096)]))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		canonical, _, err := Family{}.ParsePayload(raw)
		if err == nil {
			checkStored(t, canonical)
			return
		}
		problem, ok := errors.AsType[*chain.FieldError](err)
		if !ok || !strings.HasPrefix(problem.Field, "payload") || problem.Problem == "" {
			t.Errorf("%q: got %v, want a chain.FieldError with its parts", raw, err)
		}
	})
}

// Gas below the intrinsic gas is refused at once: a node would refuse it only after it has a nonce.
func TestGasBelowIntrinsicIsRefused(t *testing.T) {
	t.Parallel()
	const to = `"to": "0x00000000000000000000000000000000000cafe0"`
	for payload, least := range map[string]int{
		to:                        21_000,
		to + `, "data": "0x00"`:   21_010, // the minimum: one token
		to + `, "data": "0x0102"`: 21_080, // the minimum: eight tokens
		`"data": "0x6000600055"`:  53_000 + 3*16 + 2*4 + 2,
		`"data": "0x60016001"`:    53_000 + 4*16 + 2,
	} {
		for gas, ok := range map[int]bool{least: true, least - 1: false} {
			_, _, err := Family{}.ParsePayload(json.RawMessage(fmt.Sprintf(`{%s, "gas": "%d"}`, payload, gas)))
			var field *chain.FieldError
			if ok && err != nil || !ok && (!errors.As(err, &field) || field.Field != "payload.gas") {
				t.Errorf("{%s} with gas %d: got %v, want accepted %v", payload, gas, err, ok)
			}
		}
	}
}

// A call that code made is refused if its recipient is not an address in canonical form.
func TestCallsToAnotherFormAreRefused(t *testing.T) {
	t.Parallel()
	for to, valid := range map[txmanager.Address]bool{
		"0x00000000000000000000000000000000000a11ce": true, "0x00000000000000000000000000000000000A11CE": false,
		"": false, "0x12": false, "m9734d509dbef15ac8e7f463be2d8d2ac2656183653d5": false,
	} {
		if err := new(Connector).CheckCall(txmanager.Call{To: &to, Value: big.NewInt(1)}); (err == nil) != valid {
			t.Errorf("%q: got %v, want it valid: %t", to, err, valid)
		}
	}
}
