package queues

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

func TestPayloadIsDecoded(t *testing.T) {
	const to = "00000000000000000000000000000000000000000000000000000000cafe0001"
	amount := strings.Repeat("0", 62) + "ff"
	other := strings.Repeat("0", 24) + strings.Repeat("ab", 20)
	for _, c := range []struct {
		name  string
		data  string
		bytes int
		want  string
	}{
		{"a known function", "a9059cbb" + to + amount, 68, "transfer(address,uint256) [to=0x00000000000000000000000000000000cafe0001/ amount=/255]"},
		{"another function", "12345678" + other + amount, 68, "0x12345678 [=0x" + strings.Repeat("ab", 20) + "/" + "980065803857193721618941593703860377886919469995 =/255]"},
		{"data that are cut", "a9059cbb" + to, 100, "transfer(address,uint256) []"},
		{"no words", "a9059cbb00", 5, "transfer(address,uint256) []"},
		{"no call", "00", 1, " []"},
	} {
		p := payloadOf(&client.TxPayload{To: "0x1", Data: "0x" + c.data, DataBytes: &c.bytes})
		var words []string
		for _, w := range p.Words {
			words = append(words, w.Name+"="+w.Address+"/"+w.Number)
		}
		check.Equal(t, c.name, fmt.Sprint(p.Function, " ", words), c.want)
	}
	if payloadOf(nil) != nil {
		t.Error("no payload was decoded")
	}
}
