package kms_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/kms/apiv1/kmspb"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/fake/kms"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
)

// addressScript runs scripts/kms-address beside a fake gcloud, which knows the version 1 of the key "treasury" and records its
// calls, and a fake terraform with that output.
func addressScript(t *testing.T, pem, keys string, arguments ...string) (out, errs, calls string, status int) {
	t.Helper()
	folder := t.TempDir()
	for name, program := range map[string]string{
		"gcloud":    "#!/bin/sh\necho \"$*\" >> " + folder + "/calls\ncase \"$*\" in *' 1 --key=treasury '*) cat " + folder + "/pem;; *) echo 'ERROR: NOT_FOUND' >&2; exit 1;; esac\n",
		"terraform": "#!/bin/sh\ncase \"$*\" in *' output -json signing_keys') cat " + folder + "/keys;; *) exit 1;; esac\n",
	} {
		check.OK(t)(os.WriteFile(filepath.Join(folder, name), []byte(program), 0o755))
	}
	check.OK(t)(os.WriteFile(filepath.Join(folder, "pem"), []byte(pem), 0o600))
	check.OK(t)(os.WriteFile(filepath.Join(folder, "keys"), []byte(keys), 0o600))
	var printed, failed strings.Builder
	c := exec.CommandContext(t.Context(), "../../../scripts/kms-address", arguments...)
	c.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	c.Stdout, c.Stderr = &printed, &failed
	if err := c.Run(); err != nil {
		t.Logf("%v: %s", err, failed.String())
	}
	called, _ := os.ReadFile(filepath.Join(folder, "calls"))
	return printed.String(), failed.String(), string(called), c.ProcessState.ExitCode()
}

// The script prints the account that the signatures of the key recover to.
func TestKMSAddressIsTheAccountOfTheSignatures(t *testing.T) {
	t.Parallel()
	h := start(t, 20*time.Second)
	version := kms.Version("treasury")
	public := check.Value(h.server.GetPublicKey(t.Context(), &kmspb.GetPublicKeyRequest{Name: version}))(t)
	out, _, calls, status := addressScript(t, public.GetPem(), "", "--chain", "1337", version)
	check.Equal(t, "status", status, 0)
	check.Equal(t, "calls", calls, "kms keys versions get-public-key 1 --key=treasury --keyring=signers --location=local --project=emulator\n")

	name := strings.TrimSuffix(out, "\n")
	submitter := check.Value(eip155.ParseSubmitter(name, 0))(t)
	check.OK(t)(h.signer.Check(t.Context(), submitter))
	signed := check.Value(h.signer.Sign(t.Context(), submitter, h.transfer(0)))(t)
	tx := new(types.Transaction)
	check.OK(t)(tx.UnmarshalBinary(signed.Raw))
	sender := check.Value(types.Sender(types.LatestSignerForChainID(tx.ChainId()), tx))(t)
	check.Equal(t, "account", name, "eip155:1337:"+sender.Hex())

	out, _, _, status = addressScript(t, public.GetPem(), "", version)
	check.Equal(t, "status without a chain", status, 0)
	check.Equal(t, "address", out, sender.Hex()+"\n")

	out, _, _, status = addressScript(t, public.GetPem(), `{"first": "`+version+`", "second": "`+version+`"}`)
	check.Equal(t, "status of terraform's keys", status, 0)
	check.Equal(t, "addresses of terraform's keys", out, "first "+sender.Hex()+"\nsecond "+sender.Hex()+"\n")
}

// The script stops with a sentence, prints no address, and asks gcloud for no name that is none.
func TestKMSAddressRefuses(t *testing.T) {
	t.Parallel()
	version := kms.Version("treasury")
	for _, test := range []struct {
		name, keys, want string
		arguments        []string
		status           int
		asked            bool
	}{
		{"a key without its version", "", "want projects/P/", []string{strings.TrimSuffix(version, "/cryptoKeyVersions/1")}, 2, false},
		{"an unknown flag", "", "got --project", []string{"--project", "p"}, 2, false},
		{"a chain that is no number", "", "want the number of a chain", []string{"--chain", "sepolia", version}, 2, false},
		{"a chain without a number", "", "want the number of a chain", []string{"--chain"}, 2, false},
		{"a key that gcloud does not see", "", "gcloud did not read the public key of " + kms.Version("other"), []string{kms.Version("other")}, 1, true},
		{"a key that is none", "", "want a public key in PEM", []string{version}, 1, true},
		{"a deployment without keys", "{}", "no signing keys", nil, 1, false},
		{"keys of another form", `{"first": "key"}`, "want the full name of a key version", nil, 1, false},
	} {
		out, errs, calls, status := addressScript(t, "no key\n", test.keys, test.arguments...)
		check.Equal(t, test.name+": status", status, test.status)
		check.Equal(t, test.name+": output", out, "")
		check.Equal(t, test.name+": gcloud was asked", calls != "", test.asked)
		if !strings.Contains(errs, test.want) {
			t.Errorf("%s: got %q, want %q in it", test.name, errs, test.want)
		}
	}
	out, _, _, status := addressScript(t, "", "", "--help")
	check.Equal(t, "status of --help", status, 0)
	if !strings.Contains(out, "kms-address [--chain ID] [VERSION...]") {
		t.Errorf("--help: got %q, want the usage", out)
	}
}
