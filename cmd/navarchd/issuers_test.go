package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// signer returns the environment of a registration authority, with additions.
func signer(more map[string]string) map[string]string {
	all := map[string]string{"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER": "a.b/c"}
	maps.Copy(all, more)
	return all
}

func inKubernetes(c *config) { c.kubeconfig, c.tlsCert = "k", "c" }

// With another CA no process has role ca, and none follows or creates a keyring. With Kubernetes signers there is role
// ca without a keyring. Contradicting flags are refused by name.
// Promise: security-ca.md#roots-of-several-cas
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
		"a signer":                {signer(nil), inKubernetes, []role{roleIngest, roleXDS, roleCA}, false, ""},
		"a domain of signers":     {map[string]string{"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API", "CERT_SIGNER_DOMAIN": "a.b"}, inKubernetes, []role{roleIngest, roleXDS, roleCA}, false, ""},
		"a signer, without a key": {signer(nil), func(c *config) { inKubernetes(c); c.dataDir = "" }, []role{roleIngest, roleXDS, roleCA}, false, ""},
		"no signer":               {map[string]string{"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API"}, inKubernetes, []role{roleIngest, roleXDS, roleCA}, false, "K8S_SIGNER, or CERT_SIGNER_DOMAIN"},
		"a signer of no domain":   {signer(map[string]string{"K8S_SIGNER": "b"}), inKubernetes, []role{roleIngest, roleXDS, roleCA}, false, "DOMAIN/NAME"},
		"a domain with a name":    {signer(map[string]string{"CERT_SIGNER_DOMAIN": "a/b"}), inKubernetes, []role{roleIngest, roleXDS, roleCA}, false, "without a slash"},
		"istiod's other one":      {map[string]string{"EXTERNAL_CA": "ISTIOD_RA_ISTIO_API"}, inKubernetes, []role{roleIngest, roleXDS, roleCA}, true, "want ISTIOD_RA_KUBERNETES_API"},
		"a signer for nobody":     {map[string]string{"K8S_SIGNER": "a/b"}, nil, []role{roleIngest, roleXDS, roleCA}, true, "K8S_SIGNER"},
		"signers, elsewhere":      {signer(nil), func(c *config) { c.tlsCert = "c" }, []role{roleIngest, roleXDS, roleCA}, false, "--kubeconfig"},
		"signers and another":     {signer(map[string]string{"ENABLE_CA_SERVER": "false"}), inKubernetes, []role{roleIngest, roleXDS}, false, "ENABLE_CA_SERVER=false contradicts"},
		"signers and cacerts":     {signer(nil), func(c *config) { inKubernetes(c); c.caCerts = "d" }, []role{roleIngest, roleXDS, roleCA}, false, "--cacerts"},
		"signers, no certificate": {signer(nil), func(c *config) { c.kubeconfig = "k" }, []role{roleIngest, roleXDS, roleCA}, false, "--tls-client-ca"},
		"signers, ca alone":       {signer(nil), func(c *config) { inKubernetes(c); c.roles = []string{"ca"} }, []role{roleCA}, false, "role ca goes with role xds"},
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
