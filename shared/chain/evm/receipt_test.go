package evm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// goodReceipt has go-ethereum's format.
const goodReceipt = `{"blockHash":"0x%064x","blockNumber":"0x10","contractAddress":null,"cumulativeGasUsed":"0x5208",` +
	`"effectiveGasPrice":"0x77359400","from":"0xabed6bd9ec382975f0d1ba42f925c3edf46be6ad","gasUsed":"0x5208",` +
	`"logs":[{"address":"0xfe","topics":["0x1","}],\"{"],"data":"0x\\","logsBloom":"0x1"}],"logsBloom":"0x00","status":"0x1",` +
	`"to":"0xfe00000000000000000000000000000000000000","transactionHash":"0x%064x","transactionIndex":"0x0","type":"0x2"}`

func receiptText(tx int) string { return fmt.Sprintf(goodReceipt, 7, tx) }

// The logsBloom is removed from the document in any position, and nothing else.
func TestDocumentIsWithoutLogsBloom(t *testing.T) {
	t.Parallel()
	const bloom = `"logsBloom":"0x00"`
	for text, want := range map[string]string{
		`{"a":1,` + bloom + `,"b":[2]}`:                          `{"a":1,"b":[2]}`,
		`{` + bloom + `,"a":1}`:                                  `{"a":1}`,
		`{"a":1,` + bloom + `}`:                                  `{"a":1}`,
		`{` + bloom + `}`:                                        `{}`,
		`{ "a" : { "logsBloom" : 1 } , "logsBloom" : "0x" }`:     `{"a":{"logsBloom":1}}`,
		"{\n\t\"logsBloom\": null ,\n\t\"a\": [ [ ], { } ]\n}":   `{"a":[[],{}]}`,
		`{"logsBloom2":"\"logsBloom\"","\\":"}","logs":[-1e+9]}`: `{"logsBloom2":"\"logsBloom\"","\\":"}","logs":[-1e+9]}`,
		`{"a":"\\\"","logsBloom":"\\","b":true}`:                 `{"a":"\\\"","b":true}`,
		`{}`:                                                     `{}`,
	} {
		r, ok := readReceipt(&cursor{text: []byte(" " + text + " ")})
		var got bytes.Buffer
		if err := json.Compact(&got, r.document(nil)); !ok || err != nil || got.String() != want {
			t.Errorf("%s: got %v, %v and %s, want %s", text, ok, err, r.document(nil), want)
		}
		check.Equal(t, fmt.Sprintf("%s: size", text), len(r.document(nil)), r.documentSize())
	}
}

// A receipt is read as encoding/json reads it, whatever surrounds its parts.
func TestReceiptMatchesEncodingJSON(t *testing.T) {
	t.Parallel()
	good := receiptText(9)
	r, ok := readReceipt(&cursor{text: []byte(good)})
	if !ok || !r.complete() || !r.succeeded || r.number != 16 || r.block != (txmanager.Hash{31: 7}) || r.tx != (txmanager.Hash{31: 9}) {
		t.Errorf("got %+v, %v, want its parts", r, ok)
	}
	for name, text := range map[string]string{
		"null":                   `null`,
		"a list":                 `[` + good + `]`,
		"a string":               `"{}"`,
		"no transaction":         strings.Replace(good, "transactionHash", "hash", 1),
		"a short hash":           strings.Replace(good, `"0x0000`, `"0x00`, 1),
		"a hash without 0x":      strings.Replace(good, `"0x0000`, `"000000`, 1),
		"a hash that is none":    strings.Replace(good, `"0x0000`, `"0x00z0`, 1),
		"a decimal number":       strings.Replace(good, `"0x10"`, `16`, 1),
		"a number with a zero":   strings.Replace(good, `"0x10"`, `"0x010"`, 1),
		"a number of 65 bits":    strings.Replace(good, `"0x10"`, `"0x10000000000000000"`, 1),
		"no number":              strings.Replace(good, `"0x10"`, `null`, 1),
		"no result":              strings.Replace(good, `"status":"0x1"`, `"status":null`, 1),
		"a name in upper case":   strings.Replace(good, "status", "STATUS", 1),
		"a result of 2":          strings.Replace(good, `"status":"0x1"`, `"status":"0x2"`, 1),
		"another result follows": strings.Replace(good, `"status":"0x1"`, `"status":"0x1","status":""`, 1),
	} {
		if r, ok := readReceipt(&cursor{text: []byte(text)}); ok && r.complete() {
			t.Errorf("%s: got %+v, want nothing that proves anything", name, r)
		}
	}
	failed := strings.Replace(good, `"status":"0x1"`, `"status":"0x0"`, 1)
	if r, ok := readReceipt(&cursor{text: []byte(failed)}); !ok || !r.complete() || r.succeeded {
		t.Errorf("reverted: got %+v, %v, want a receipt that says so", r, ok)
	}
}

// No answer of a node panics. In valid JSON an object is read to its end, and its document is the same
// object without the logsBloom.
func FuzzReceipt(f *testing.F) {
	f.Add([]byte(receiptText(1)))
	f.Add([]byte("[" + receiptText(1) + ", " + receiptText(2) + "]"))
	f.Add([]byte(`{"logsBloom":"\\\"","a":[{}, -1.5e3, null]}`))
	f.Add([]byte(`{"a":"`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n := 0
		eachReceipt(text, func(receipt) bool { n++; return true })
		r, ok := readReceipt(&cursor{text: text})
		var parts, document map[string]json.RawMessage
		if !json.Valid(text) {
			return
		}
		if isObject := bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")); ok != isObject {
			t.Fatalf("%q: got %v, want %v", text, ok, isObject)
		}
		var list []map[string]json.RawMessage
		if json.Unmarshal(text, &list) == nil && n != len(list) && !bytes.Contains(text, []byte("null")) {
			t.Errorf("%q: got %d receipts, want %d", text, n, len(list))
		}
		if !ok {
			return
		}
		check.OK(t)(json.Unmarshal(r.document(nil), &document))
		_ = json.Unmarshal(text, &parts) // it is an object
		delete(parts, "logsBloom")
		delete(document, "logsBloom") // a second one, or a name with an escape
		check.Same(t, fmt.Sprintf("%q: document", text), document, parts)
		var hash txmanager.Hash
		if r.has.tx && !bytes.Contains(text, []byte(`\`)) && (json.Unmarshal(parts["transactionHash"], &hash) != nil || hash != r.tx) {
			t.Errorf("%q: transaction: got %s, want %s", text, r.tx, parts["transactionHash"])
		}
	})
}

// A node that refused is asked again after a while.
func TestRefusedBlockReceiptsAreRequestedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b offer
		check.Equal(t, "offered before", b.offered(), true)
		b.refused()
		time.Sleep(askAgain)
		check.Equal(t, fmt.Sprintf("offered after %s", askAgain), b.offered(), false)
		time.Sleep(1)
		check.Equal(t, "offered later", b.offered(), true)
	})
}

// BenchmarkTakeBlock reads the receipts of a block of 2,000 that are all wanted, and of one without
// wanted ones.
func BenchmarkTakeBlock(b *testing.B) {
	var q txmanager.ChainQuery
	var texts []string
	for i := range 2_000 {
		text := strings.Replace(receiptText(i+1), `"logsBloom":"0x00"`, `"logsBloom":"0x`+strings.Repeat("0", 512)+`"`, 1)
		texts, q.Receipts = append(texts, text), append(q.Receipts, txmanager.Hash{30: byte((i + 1) >> 8), 31: byte(i + 1)})
	}
	raw := []byte("[" + strings.Join(texts, ",") + "]")
	for name, wanted := range map[string]txmanager.ChainQuery{"Ours": q, "Others": {}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				r := newReceipts(wanted, newRecent())
				n, err := r.takeBlock(&blockCall{number: 16, proof: txmanager.Hash{31: 7}, answer: &call{raw: raw}})
				if err != nil || n != len(wanted.Receipts) {
					b.Fatalf("got %d, %v, want %d", n, err, len(wanted.Receipts))
				}
			}
		})
	}
}
