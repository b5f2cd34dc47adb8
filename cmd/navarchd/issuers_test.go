package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Where another CA signs no process has role ca, follows a keyring, or makes one; what contradicts that is refused by name, and so are signers that
// this version has not.
func TestIssuers(t *testing.T) {
	for name, one := range map[string]struct {
		environment map[string]string
		change      func(*config)
		roles       []role
		keyring     bool
		says        string
	}{
		"our own":                 {nil, nil, []role{roleIngest, roleXDS, roleCA}, true, ""},
		"our own, by name":        {map[string]string{"ENABLE_CA_SERVER": "true", "PILOT_CERT_PROVIDER": "istiod"}, nil, []role{roleIngest, roleXDS, roleCA}, true, ""},
		"another":                 {map[string]string{"ENABLE_CA_SERVER": "false"}, func(c *config) { c.tlsCert = "c" }, []role{roleIngest, roleXDS}, false, ""},
		"another, nothing secure": {map[string]string{"ENABLE_CA_SERVER": "false"}, func(c *config) { c.secureGRPCAddr = "" }, []role{roleIngest, roleXDS}, false, ""},
		"another, no certificate": {map[string]string{"ENABLE_CA_SERVER": "false"}, nil, []role{roleIngest, roleXDS}, false, "--tls-client-ca"},
		"another, and role ca":    {map[string]string{"ENABLE_CA_SERVER": "false"}, func(c *config) { c.roles = []string{"ca"} }, []role{roleCA}, true, "--roles: role ca"},
		"another, and cacerts":    {map[string]string{"ENABLE_CA_SERVER": "false"}, func(c *config) { c.caCerts, c.tlsCert = "d", "c" }, []role{roleIngest, roleXDS}, false, "--cacerts"},
		"not a truth":             {map[string]string{"ENABLE_CA_SERVER": "perhaps"}, nil, []role{roleIngest, roleXDS, roleCA}, true, "ENABLE_CA_SERVER"},
		"a signer of Kubernetes":  {map[string]string{"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API"}, nil, []role{roleIngest, roleXDS, roleCA}, true, "EXTERNAL_CA"},
		"its name":                {map[string]string{"K8S_SIGNER": "a/b"}, nil, []role{roleIngest, roleXDS, roleCA}, true, "K8S_SIGNER"},
		"for our own certificate": {map[string]string{"PILOT_CERT_PROVIDER": "k8s.io/a"}, nil, []role{roleIngest, roleXDS, roleCA}, true, "PILOT_CERT_PROVIDER"},
		"which is a file":         {map[string]string{"PILOT_CERT_PROVIDER": "none"}, func(c *config) { c.tlsCert = "c" }, []role{roleIngest, roleXDS, roleCA}, true, ""},
	} {
		c := config{dataDir: "d", secureGRPCAddr: ":15012"}
		if one.change != nil {
			one.change(&c)
		}
		said := ""
		if err := c.env.read(func(name string) (string, bool) { v, is := one.environment[name]; return v, is }); err != nil {
			said = err.Error()
		}
		c.fill()
		c.checkIssuers(func(format string, args ...any) { said += fmt.Sprintf(format, args...) })
		for _, r := range existing {
			if c.has(r) != slices.Contains(one.roles, r) {
				t.Errorf("%s: role %s: %v", name, r, c.has(r))
			}
		}
		if c.hasKeyring() != one.keyring || (said == "") != (one.says == "") || !strings.Contains(said, one.says) {
			t.Errorf("%s: follows a keyring: %v, said %q, want %q", name, c.hasKeyring(), said, one.says)
		}
	}
}
