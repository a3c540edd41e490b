package main

import (
	"context"
	"log"
	"os"
	"testing"

	"github.com/fencepost/fencepost/emulator/fake/ubscore"
	"github.com/fencepost/fencepost/emulator/stack"
)

// binary is the function server and core the trading core, built once for all tests.
var binary, core string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "fencepost-torture-test-")
	if err == nil {
		// The folders of failed runs are created here, and removed after the tests.
		os.Setenv("TMPDIR", folder)
		binary, err = stack.BuildProgram(context.Background(), folder, "emulator/acceptance/payroll/server")
	}
	if err == nil {
		core, err = ubscore.Build(context.Background(), folder)
	}
	if err != nil {
		os.RemoveAll(folder)
		log.Fatal(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}
