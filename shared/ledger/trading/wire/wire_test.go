package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/trading/wire"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

var ops = []transfer.Op{transfer.Withdraw, transfer.Deposit, transfer.Refund, transfer.OutsideDeposit, transfer.OutsideWithdrawal}

// decode decodes a body as a core does.
func decode(body string) (wire.Operation, transfer.Call, error) {
	r := httptest.NewRequest("POST", wire.OperationsPath, strings.NewReader(body))
	o, err := web.Decode[wire.Operation](httptest.NewRecorder(), r, wire.MaxBody)
	if err != nil {
		return o, transfer.Call{}, err
	}
	c, err := o.Call()
	return o, c, err
}

// Every call with a body is decoded as it was encoded.
func TestCallsSurviveEncoding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := transfer.Call{
			ReqID:     rapid.StringMatching(`[!-~]{1,128}`).Draw(t, "reqId"),
			UserID:    rapid.Int64().Draw(t, "user"),
			AssetID:   rapid.Int32().Draw(t, "asset"),
			Units:     rapid.Uint64().Draw(t, "units"),
			CreatedAt: time.UnixMicro(rapid.Int64Range(0, 250_000_000_000_000_000).Draw(t, "createdAt")).UTC(),
		}
		op := rapid.SampledFrom(ops).Draw(t, "op")
		o := check.Value(wire.NewOperation(op, c))(t)
		body, err := json.Marshal(o)
		if err != nil || len(body) > wire.MaxBody {
			t.Fatalf("got %d bytes, %v", len(body), err)
		}
		if o, got, err := decode(string(body)); err != nil || got != c || o.Op != op {
			t.Errorf("%s: got %s %+v, %v; want %s %+v", body, o.Op, got, err, op, c)
		}
	})
}

// A call that no body can express is rejected.
func TestCallsWithoutABodyAreRejected(t *testing.T) {
	t.Parallel()
	good := transfer.Call{ReqID: "R", UserID: 1, AssetID: 1, Units: 1, CreatedAt: time.Unix(1e9, 0)}
	for what, x := range map[string]struct {
		op    transfer.Op
		spoil func(*transfer.Call)
		field string
	}{
		"no op":        {"", func(*transfer.Call) {}, "op"},
		"unknown op":   {"steal", func(*transfer.Call) {}, "op"},
		"no money":     {wire.SetStatus, func(*transfer.Call) {}, "op"},
		"no id":        {transfer.Deposit, func(c *transfer.Call) { c.ReqID = "" }, "reqId"},
		"long id":      {transfer.Deposit, func(c *transfer.Call) { c.ReqID = strings.Repeat("x", 129) }, "reqId"},
		"space in id":  {transfer.Deposit, func(c *transfer.Call) { c.ReqID = "R 1" }, "reqId"},
		"not ASCII":    {transfer.Deposit, func(c *transfer.Call) { c.ReqID = "Ré" }, "reqId"},
		"not UTF-8":    {transfer.Deposit, func(c *transfer.Call) { c.ReqID = "R\xff" }, "reqId"},
		"no time":      {transfer.Deposit, func(c *transfer.Call) { c.CreatedAt = time.Time{} }, "createdAt"},
		"far too late": {transfer.Deposit, func(c *transfer.Call) { c.CreatedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "createdAt"},
	} {
		c := good
		x.spoil(&c)
		_, err := wire.NewOperation(x.op, c)
		if field, ok := errors.AsType[*wire.FieldError](err); !ok || field.Field != x.field {
			t.Errorf("%s: got %v, want an error of %s", what, err, x.field)
		}
	}
}

const readPage = `{"op": "deposit", "reqId": "R", "userId": 1, "assetId": 2, "units": "3", "createdAt": "2026-01-02T15:04:05Z"}`

// A body is accepted only if each member is present once with an exact value.
func TestInexactBodiesAreRejected(t *testing.T) {
	t.Parallel()
	if _, c, err := decode(readPage); err != nil || c.Units != 3 || c.UserID != 1 || c.AssetID != 2 {
		t.Fatalf("the body that the others are made of: got %+v, %v", c, err)
	}
	for _, edit := range [][2]string{
		{`"op": "deposit", `, ``}, {`"reqId": "R", `, ``}, {`"userId": 1, `, ``}, {`"assetId": 2, `, ``}, {`"units": "3", `, ``},
		{`, "createdAt": "2026-01-02T15:04:05Z"`, ``},
		{`1`, `null`}, {`1`, `"1"`}, {`1`, `1.5`}, {`1`, `9223372036854775808`}, {`2,`, `2147483648,`},
		{`"3"`, `3`}, {`"3"`, `""`}, {`"3"`, `"03"`}, {`"3"`, `"+3"`}, {`"3"`, `"-3"`}, {`"3"`, `" 3"`}, {`"3"`, `"3.0"`}, {`"3"`, `"3e1"`},
		{`"3"`, `"1_0"`}, {`"3"`, `"0x3"`}, {`"3"`, `"18446744073709551616"`}, {`"3"`, `null`},
		{`05Z`, `05`}, {`05Z`, `05.0000001Z`}, {`2026`, `1969`}, {`2026-01-02T15:04:05Z`, `1767366245`},
		{`deposit`, `Deposit`}, {`deposit`, `asset`}, {`deposit`, `floor`}, {`"op"`, `"Op"`}, {`"op"`, `"extra": 1, "op"`},
		{`"op"`, `"op": "deposit", "op"`}, {`Z"}`, `Z"} {}`}, {`Z"}`, `Z"`},
	} {
		body := strings.Replace(readPage, edit[0], edit[1], 1)
		if body == readPage {
			t.Fatalf("%q is not in the body", edit[0])
		}
		if _, c, err := decode(body); err == nil {
			t.Errorf("%s: got %+v, want it refused", body, c)
		}
	}
}

// An outcome that needs a reason has one, and no other has.
func TestOutcomesNeedTheirReason(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		outcome string
		reason  transfer.Reason
		ok      bool
	}{
		{wire.Applied, "", true}, {wire.RefusedEver, "OVERFLOW", true}, {wire.RefusedEver, "SOMETHING_NEW", true},
		{wire.Applied, "OVERFLOW", false}, {wire.RefusedEver, "", false}, {wire.RefusedEver, "overflow", false},
		{wire.RefusedEver, "NO WAY", false}, {wire.RefusedEver, transfer.Reason(strings.Repeat("X", 65)), false},
		{"", "", false}, {"APPLIED", "", false}, {"pending", "", false},
	} {
		check.Equal(t, fmt.Sprintf("outcome %q with reason %q is right", x.outcome, x.reason), wire.CheckOutcome(x.outcome, x.reason) == nil, x.ok)
	}
}

// FuzzOperation decodes arbitrary bytes. An accepted body has the same meaning when it is encoded
// again.
func FuzzOperation(f *testing.F) {
	f.Add(readPage)
	f.Add(strings.Replace(readPage, `"3"`, `"18446744073709551615"`, 1))
	f.Add(strings.Replace(readPage, `05Z`, `05.123456+23:59`, 1))
	f.Fuzz(func(t *testing.T, body string) {
		o, c, err := decode(body)
		if err != nil {
			var problem *web.Problem
			var field *wire.FieldError
			if !errors.As(err, &problem) && !errors.As(err, &field) {
				t.Fatalf("%q: got %v, want a problem or a field's error", body, err)
			}
			return
		}
		again, err := wire.NewOperation(o.Op, c)
		if err != nil {
			t.Fatalf("%q became %+v, which has no body: %v", body, c, err)
		}
		text := check.Value(json.Marshal(again))(t)
		if _, got, err := decode(string(text)); err != nil || got != c {
			t.Errorf("%q: got %+v, then %+v, %v", body, c, got, err)
		}
		if c.ReqID == "" || len(c.ReqID) > wire.MaxReqID || c.CreatedAt.Year() < 1970 || c.Units > math.MaxUint64 {
			t.Errorf("%q: got %+v", body, c)
		}
	})
}

// A line's mark changes with each part of the line's content, and not with the notation of its
// times.
func TestMarksDifferByContentOnly(t *testing.T) {
	t.Parallel()
	six, two := uint8(6), uint8(2)
	line := wire.Entry{Seq: 9, Op: transfer.Deposit, ReqID: "R", UserID: 7, AssetID: 1, Units: "5", Precision: &six,
		CreatedAt: "2026-01-02T15:04:05Z", At: "2026-01-02T15:04:06Z", Outcome: wire.Applied}
	seen := map[string]string{line.Mark(): "the line"}
	for what, change := range map[string]func(*wire.Entry){
		"seq": func(e *wire.Entry) { e.Seq++ }, "op": func(e *wire.Entry) { e.Op = transfer.Refund }, "reqId": func(e *wire.Entry) { e.ReqID = "S" },
		"userId": func(e *wire.Entry) { e.UserID++ }, "assetId": func(e *wire.Entry) { e.AssetID++ }, "units": func(e *wire.Entry) { e.Units = "6" },
		"status": func(e *wire.Entry) { e.Status = wire.Frozen }, "precision": func(e *wire.Entry) { e.Precision = &two },
		"createdAt": func(e *wire.Entry) { e.CreatedAt = "2026-01-02T15:04:05.000001Z" }, "at": func(e *wire.Entry) { e.At = "2026-01-02T15:04:06.000001Z" },
		"outcome": func(e *wire.Entry) { e.Outcome = wire.RefusedEver }, "reason": func(e *wire.Entry) { e.Reason = "OVERFLOW" },
	} {
		other := line
		change(&other)
		if as, ok := seen[other.Mark()]; ok {
			t.Errorf("another %s: got the mark of %s, want one of its own", what, as)
		}
		seen[other.Mark()] = "another " + what
	}
	same := line
	same.At, same.CreatedAt = "2026-01-02T16:04:06.000000+01:00", "2026-01-02T15:04:05.000Z"
	check.Equal(t, "its times written otherwise", same.Mark(), line.Mark())
}
