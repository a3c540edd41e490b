package browser

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

var screenshots = flag.String("screenshots", "", "draw the pages into this `folder`, as ./scripts/screenshots does")

// largest is the most bytes that a picture may have.
const largest = 100_000

// The pictures of docs/console.md, by ./scripts/screenshots. The accounts, amounts and names are the same each time; ids
// and times are not.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("it draws pictures for ./scripts/screenshots alone")
	}
	needBrowser(t)
	ctx, cancel := context.WithTimeout(t.Context(), acceptancetest.Within)
	defer cancel()
	h := must(startDeployment(ctx, textsEnding("")))(t)
	t.Cleanup(func() { check(t, h.close()) })
	check(t, h.seedPictures(ctx))
	b := h.as(t, stack.OperatorAccount)
	b.scheme("light")
	b.picture("overview", "/console/")
	for _, p := range h.pictured() {
		b.picture(p.name, p.path)
	}
	_, _ = h.drill(t, "foreign-key") // it ends with the test
	s := h.drilled()
	poll(t, "the loss is final", func() bool {
		lost, err := h.operator.Lost(ctx, s, "")
		return err == nil && len(lost.Nonces) > 0 && lost.FinalCount != nil && *lost.FinalCount >= lost.ChainCount
	})
	b.picture("protect", submitterPath(s)+"/protect")
	b.picture("release", submitterPath(s)+"/protect/release")
	b.scheme("dark")
	b.picture("attention", "/console/attention")
	b.picture("overview-dark", "/console/")
	b.width(narrow)
	b.picture("phone", "/console/attention")
}

// pictured are the pages of the pictures that need no incident.
func (h *deployment) pictured() []listed {
	return []listed{
		{"submitters", "/console/submitters", nil}, {"submitter", submitterPath(h.ordinary()), nil}, {"transaction", "/console/tx/" + h.stuck, nil},
		{"search", "/console/search?q=" + h.paid, nil}, {"transfers", "/console/transfers", nil}, {"transfer", "/console/transfers/" + h.transfer, nil},
		{"webhooks", "/console/webhooks", nil}, {"chains", "/console/chains", nil}, {"audit", "/console/audit", nil}, {"drill", "/console/drill", nil},
		{"proposals", "/console/proposals", nil}, {"conservation", "/console/conservation", nil},
	}
}

// seedPictures makes what the pictures show: names, a queue behind a STUCK transaction, open nonces, and money.
func (h *deployment) seedPictures(ctx context.Context) error {
	for i, name := range []string{"refunds", "hot wallet", "settlement", "cold sweep"} {
		if _, err := h.operator.UpdateSubmitter(ctx, string(h.Submitters()[i]), client.SubmitterUpdate{Name: &name}, "names for people"); err != nil {
			return err
		}
	}
	if err := h.seedMoney(ctx); err != nil {
		return err
	}
	for i := range 12 {
		id, err := h.post(ctx, h.ordinary(), fmt.Sprintf("invoice-%d", 2100+i))
		if err == nil {
			err = h.reaches(ctx, id, client.Confirmed)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(h.seedStuckPicture(ctx), h.seedReceiver(ctx)); err != nil {
		return err
	}
	if _, err := h.operator.ResumeWebhookEndpoint(ctx, "shop", "it is open again"); client.ProposedBy(err) == nil {
		return fmt.Errorf("resume the endpoint: got %w, want a proposal", err)
	}
	return nil
}

// seedStuckPicture leaves a submitter with a STUCK transaction and a queue.
func (h *deployment) seedStuckPicture(ctx context.Context) error {
	if err := h.seedStuck(ctx); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := h.post(ctx, h.hostile(), fmt.Sprintf("refund-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// picture draws the page, in at most largest bytes.
func (b *tab) picture(name, path string) {
	b.t.Helper()
	b.open(path)
	shot := must(chromedp.Run(b.ctx, chromedp.FullScreenshot(100)))(b.t)
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
