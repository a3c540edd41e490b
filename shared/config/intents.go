package config

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// Intents are settings of accepted intents.
type Intents struct {
	// MACKeys are the keys of the MACs of intents. The first makes MACs, all of them check
	// MACs.
	MACKeys []Secret
}

func (i *Intents) settings() []setting {
	return []setting{
		{name: "intents.macKeys",
			meaning: "the keys of the MACs of intents, a secret. The first makes MACs, each checks them. A process that accepts intents or signs needs them. While the key is changed, give the new one and then the old one",
			field:   macKeys(&i.MACKeys)},
	}
}

var kmsVersion = regexp.MustCompile(`^gcpkms:projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+/cryptoKeyVersions/[^/\s]+$`)

func macKeys(p *[]Secret) field {
	return field{
		want:   "keys separated by commas, each the base64 of 32 to 64 random bytes, or gcpkms:projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N, each once",
		secret: true,
		set: func(text string) bool {
			all := strings.Split(text, ",")
			for i, one := range all {
				all[i] = strings.TrimSpace(one)
				key, err := base64.StdEncoding.DecodeString(all[i])
				if right := err == nil && len(key) >= 32 && len(key) <= 64; !right && !kmsVersion.MatchString(all[i]) || slices.Contains(all[:i], all[i]) {
					return false
				}
			}
			*p = nil
			for _, one := range all {
				*p = append(*p, NewSecret(one))
			}
			return true
		},
		unset: func() bool { return len(*p) == 0 },
	}
}
