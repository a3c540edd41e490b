package browser

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/client"
)

var screenshots = flag.String("screenshots", "", "draw the pages into this `folder`, as ./scripts/screenshots does")

// largest is the most bytes that a picture may have.
const largest = 100_000

// The pictures of docs/console.md, by ./scripts/screenshots. The accounts, amounts and names are the same each time. What
// else differs from run to run is replaced in the pages, so that their text is the same too.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("it draws pictures for ./scripts/screenshots alone")
	}
	needBrowser(t)
	ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
	defer cancel()
	h := must(startDeployment(ctx, textsEnding(""), time.Second))(t)
	t.Cleanup(func() {
		check(t, h.ends.Close())
		if t.Failed() {
			t.Log(h.Log.End())
		}
	})
	b := h.as(t, stack.OperatorAccount)
	b.album = albumOf(t, h)
	b.scheme("light")
	h.drawCalm(t, b)
	h.drawMoney(t, b)
	h.drawForeign(t, b)
	h.drawProtect(t, b)
	h.drawQueues(t, b)
	b.width(narrow)
	b.picture("submitter-phone", submitterPath(h.drilled()))
	b.scheme("dark")
	b.picture("attention-phone", "/console/attention")
	b.width(wide)
	b.picture("overview-dark", "/console/")
	b.picture("submitter-dark", submitterPath(h.drilled()))
	explorer := newTab(t, h.profile(t), h.control.URL())
	explorer.scheme("light")
	explorer.open("/explorer")
	explorer.awaitOperations()
	explorer.evaluate(`document.querySelector("`+createTxSection+`").scrollIntoView()`, nil)
	poll(t, "the menu shows the operation", func() (shown bool) {
		explorer.evaluate(`Boolean(document.querySelector("[data-item-id='tag/transactions/operation/createTx']")?.getClientRects().length)`, &shown)
		return shown
	})
	explorer.evaluate(`document.getAnimations().forEach(a => a.finish())`, nil)
	explorer.draws("explorer", chromedp.CaptureScreenshot())
	b.album.write(t, *screenshots)
}

// drawCalm draws pages before anything is wrong: names, transactions, money, and a receiver that is closed.
func (h *deployment) drawCalm(t *testing.T, b *tab) {
	t.Helper()
	ctx := t.Context()
	for i, name := range []string{"payroll", "settlement", "treasury", "hot wallet"} {
		must(h.operator.UpdateSubmitter(ctx, string(h.Submitters()[i+1]), client.SubmitterUpdate{Name: &name}, "names for people"))(t)
	}
	check(t, h.seed(ctx, h.seedNames, h.seedMoney, h.seedTransactions, h.seedReceiver))
	_, err := h.operator.ResumeWebhookEndpoint(ctx, "shop", "it is open again")
	proposed := client.ProposedBy(err)
	if proposed == nil {
		t.Fatalf("resume the endpoint: got %v, want a proposal", err)
	}
	b.picture("chains", "/console/chains")
	b.until("/console/webhooks", "up to date") // the other receiver, which takes the events
	b.picture("webhooks", "/console/webhooks")
	b.picture("transfer", "/console/transfers/"+h.transfer)
	second := h.as(t, stack.SecondAccount)
	second.album = b.album
	second.scheme("light")
	second.picture("proposal", "/console/proposals/"+proposed.ProposalID)
}

// drawMoney draws transfers of several ends, and a balance without a journal line, which is adjusted afterwards.
func (h *deployment) drawMoney(t *testing.T, b *tab) {
	t.Helper()
	ctx := t.Context()
	users := must(h.UserClient(user))(t)
	moves := []client.TransferRequest{
		{From: "FUNDING", To: "SPOT", Asset: stack.ETH.Name, Amount: "2.5"}, {From: "SPOT", To: "FUNDING", Asset: stack.ETH.Name, Amount: "0.75"},
		{From: "FUNDING", To: "SPOT", Asset: stack.ETH.Name, Amount: "900"}, // the user has less
	}
	for _, move := range moves {
		if _, err := users.CreateTransfer(ctx, move); err != nil && client.CodeOf(err) != "INSUFFICIENT_BALANCE" {
			t.Fatal(err)
		}
	}
	b.picture("transfers", "/console/transfers")
	h.ChangeOne(t, `update balances_tb set available = available + 0.01 where user_id = $1 and asset_id = $2`, user, stack.ETH.ID)
	must(h.operator.CheckConservation(ctx, false))(t)
	b.picture("conservation", "/console/conservation")
	found := must(h.operator.Conservation(ctx))(t)
	must(h.operator.AdjustFinding(ctx, found.LastCheck.Found[0].ID, "balance", "it was changed by hand"))(t)
	must(h.operator.CheckConservation(ctx, false))(t)
	check(t, h.operator.ResumeHalt(ctx, found.Halts[0].ID, true, "the balance is right again"))
}

// drawForeign draws a foreign transaction that waits for a decision, and the drill that made it.
func (h *deployment) drawForeign(t *testing.T, b *tab) {
	t.Helper()
	ctx, s := t.Context(), h.drilled()
	h.confirmed(t, s, "invoice-21", 6)
	b.startDrill("foreign-key", false)
	lost := h.finalLoss(t, s)
	b.picture("drill", "/console/drill")
	incident := must(h.operator.Submitter(ctx, s))(t).Protect.Incident
	release := client.Release{Incident: incident, Mode: "resync", Count: lost.FinalCount, Requests: map[uint64]string{}, Reason: "an old script of ours"}
	for _, n := range lost.Nonces {
		release.Requests[n.Nonce] = "none"
	}
	must(h.operator.Release(ctx, s, release))(t)
	b.drillEnds(h)
	b.picture("foreign", submitterPath(s)+"/foreign")
	must(h.operator.WriteOffForeign(ctx, s, &lost.Nonces[0].Nonce, nil, "an old script of ours"))(t)
}

// confirmed posts payments and waits until all are confirmed.
func (h *deployment) confirmed(t *testing.T, submitter, request string, n int) {
	t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, must(h.post(t.Context(), submitter, fmt.Sprint(request, i)))(t))
	}
	for _, id := range ids {
		check(t, h.reaches(t.Context(), id, client.Confirmed))
	}
}

// finalLoss waits until what the submitter has lost is final, and whether each transaction succeeded was read.
func (h *deployment) finalLoss(t *testing.T, s string) (lost client.LostNonces) {
	t.Helper()
	poll(t, "the loss is final", func() bool {
		var err error
		lost, err = h.operator.Lost(t.Context(), s, "")
		unread := slices.ContainsFunc(lost.Nonces, func(n client.LostNonce) bool { return n.Succeeded == nil })
		return err == nil && len(lost.Nonces) > 0 && !unread && lost.FinalCount != nil && *lost.FinalCount >= lost.ChainCount
	})
	return lost
}

// drawProtect draws an incident: the account's owner has made a payment by hand that waits in a node's pool, with the same
// nonce.
func (h *deployment) drawProtect(t *testing.T, b *tab) {
	t.Helper()
	ctx, s := t.Context(), h.changed()
	h.confirmed(t, s, "payout-run-", 3)
	h.Chain.StopMining()
	posted := must(h.caller.CreateTx(ctx, client.Intent{Submitter: s, RequestID: "payout-run-3", Payload: client.Payload{To: receiver, Value: fmt.Sprint(byHand)}}))(t)
	check(t, h.reaches(ctx, posted.TxID, client.Tracking))
	h.payByHand(t, 2, *must(h.operator.Tx(ctx, posted.TxID))(t).Nonce)
	h.Chain.StartMining()
	poll(t, "PROTECT", func() bool { return must(h.operator.Submitter(ctx, s))(t).Protect != nil })
	check(t, h.Chain.Mine(70)) // so that the block is finalized
	h.finalLoss(t, s)
	b.picture("protect", submitterPath(s)+"/protect")
	b.picture("release", submitterPath(s)+"/protect/release")
}

// byHand is the value of the payment by hand, in wei.
const byHand = 250_000_000_000_000_000

// payByHand sends such a payment by the key of the account with the index, with higher fees than Fencepost's.
func (h *deployment) payByHand(t *testing.T, account int, nonce uint64) {
	t.Helper()
	tx := h.Sign(devchain.DevAccounts(account + 1)[account], h.Payment(nonce, common.HexToAddress(receiver), byHand, 1))
	check(t, h.Node.SendTransaction(t.Context(), tx))
}

// drawQueues draws a lane with many states: two failed calls, two transactions in a block, one that no node takes, and a
// queue behind it.
func (h *deployment) drawQueues(t *testing.T, b *tab) {
	t.Helper()
	ctx, s := t.Context(), h.drilled()
	closed := must(h.Deploy(ctx, contracts.Closed()))(t)
	for i := range 2 {
		created := must(h.caller.CreateTx(ctx, client.Intent{Submitter: s, RequestID: fmt.Sprint("refund-", i), Payload: client.Payload{To: closed.String(), Value: "1", Gas: "60000"}}))(t)
		check(t, h.reaches(ctx, created.TxID, client.Failed))
	}
	h.confirmed(t, s, "invoice-22", 5)
	h.Chain.StopMining()
	h.faults(rpcproxy.Faults{Refuse: func(tx *types.Transaction) string {
		if tx.Value().Int64() == dear {
			return "tx fee (1.50 ether) exceeds the configured cap (1.00 ether): ask the operator"
		}
		return ""
	}})
	var inBlock []string
	for i := range 2 {
		inBlock = append(inBlock, must(h.post(ctx, s, fmt.Sprint("invoice-23", i)))(t))
		check(t, h.reaches(ctx, inBlock[i], client.Tracking))
	}
	created := must(h.caller.CreateTx(ctx, client.Intent{Submitter: s, RequestID: "invoice-232", Payload: client.Payload{To: receiver, Value: fmt.Sprint(dear)}}))(t)
	check(t, h.reaches(ctx, created.TxID, client.Stuck))
	check(t, h.Chain.Mine(1))
	for i := range 4 {
		must(h.post(ctx, s, fmt.Sprint("invoice-24", i)))(t)
	}
	for _, id := range inBlock {
		poll(t, "it is in the block", func() bool { return must(h.operator.Tx(ctx, id))(t).SubState == "INCLUDED" })
	}
	b.picture("submitter", submitterPath(s))
	b.picture("submitters", "/console/submitters")
	b.picture("transaction", "/console/tx/"+created.TxID)
	b.picture("decide", "/console/tx/"+created.TxID+"/decide")
	b.picture("search", "/console/search?q=FAILED")
	b.picture("attention", "/console/attention")
	b.picture("audit", "/console/audit")
	b.picture("overview", "/console/")
}

// dear is the value that no node takes, in wei.
const dear = 1313

// picture draws the page, in at most largest bytes. What differs from run to run is replaced first.
func (b *tab) picture(name, path string) {
	b.t.Helper()
	b.open(path)
	b.album.still(b, name)
	b.draws(name, chromedp.FullScreenshot(100))
}

// draws writes the picture of the shown page.
func (b *tab) draws(name string, picture chromedp.Action[[]byte]) {
	b.t.Helper()
	shot := must(chromedp.Run(b.ctx, picture))(b.t)
	drawn := must(reduce(shot))(b.t)
	check(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), drawn, 0o644))
}

// reduce encodes a PNG with as few colours as it needs to be small.
func reduce(shot []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	for _, colours := range []int{256, 64, 16} {
		reduced := image.NewPaletted(full.Bounds(), palette(full, colours))
		draw.Draw(reduced, full.Bounds(), full, full.Bounds().Min, draw.Src)
		var out bytes.Buffer
		encoder := png.Encoder{CompressionLevel: png.BestCompression}
		if err := encoder.Encode(&out, reduced); err != nil {
			return nil, err
		}
		if out.Len() <= largest {
			return out.Bytes(), nil
		}
	}
	return nil, fmt.Errorf("the picture needs more than %d bytes with 16 colours: make the page or the window smaller", largest)
}

// palette is the most frequent colours of the picture.
func palette(of image.Image, colours int) color.Palette {
	count := make(map[color.Color]int)
	for y := of.Bounds().Min.Y; y < of.Bounds().Max.Y; y++ {
		for x := of.Bounds().Min.X; x < of.Bounds().Max.X; x++ {
			count[of.At(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	return color.Palette(all[:min(colours, len(all))])
}

var pictureLink = regexp.MustCompile(`!\[[^\]]*\]\(((?:docs/)?console/[^)]+\.png)\)`)

// The pictures that the pages show are there, and small.
func TestPicturesOfTheDocsAreThere(t *testing.T) {
	t.Parallel()
	shown := make(map[string]bool)
	root := acceptancetest.Root()
	for _, page := range []string{"README.md", "docs/console.md"} {
		text := string(must(os.ReadFile(root + page))(t))
		found := pictureLink.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s: got no picture of the console, want some", page)
		}
		for _, m := range found {
			path := root + "docs/" + strings.TrimPrefix(m[1], "docs/")
			shown[filepath.Base(path)] = true
			info, err := os.Stat(path)
			if err != nil {
				t.Errorf("%s shows %s: %v", page, m[1], err)
			} else if info.Size() > largest {
				t.Errorf("%s shows %s: got %d bytes, want at most %d", page, m[1], info.Size(), largest)
			}
		}
	}
	for _, file := range must(filepath.Glob(root + "docs/console/*.png"))(t) {
		if !shown[filepath.Base(file)] {
			t.Errorf("%s: got it on no page, want it shown or removed", file)
		}
	}
}
