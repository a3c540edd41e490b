package shared_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

var (
	codeBlock   = regexp.MustCompile("(?ms)^```(go|ts|python)\n(.*?)^```$")
	exampleFile = regexp.MustCompile(`docs/examples/[a-z/]+(?:\.[a-z]+)?`)
)

// The code of the page on receivers is the code of the examples, which tests run.
func TestCodeOfTheReceiversPageIsInTheExamples(t *testing.T) {
	t.Parallel()
	files := map[string]string{"go": "main.go", "ts": "receiver.ts", "python": "receiver.py"}
	shown := make(map[string]int)
	for _, block := range codeBlock.FindAllStringSubmatch(readPage(t, "../docs/receivers.md"), -1) {
		language, code := block[1], block[2]
		shown[language]++
		if text := readPage(t, "../docs/examples/receiver/"+files[language]); !strings.Contains("\n"+text, "\n"+code) {
			t.Errorf("docs/receivers.md: this is not in docs/examples/receiver/%s:\n%s", files[language], code)
		}
	}
	for language := range files {
		if shown[language] < 2 {
			t.Errorf("docs/receivers.md: got %d blocks of %s, want one to verify and one to store", shown[language], language)
		}
	}
}

// The commands of the examples' page name files and folders that are there.
func TestCommandsOfTheExamplesNameFilesThatAreThere(t *testing.T) {
	t.Parallel()
	named := exampleFile.FindAllString(readPage(t, "../docs/examples/README.md"), -1)
	for _, name := range named {
		check.Err(t, "docs/examples/README.md names "+name, nil)(os.Stat("../" + name))
	}
	atLeast(t, "files named by docs/examples/README.md", len(named), 7)
}
