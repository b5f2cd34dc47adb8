package analyze

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// Each reason for which a certificate is not renewed, and the states in which it is.
func TestRenewals(t *testing.T) {
	const of = "---\n{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: cert, namespace: edge}, status: {"
	for _, c := range []struct{ name, objects, want string }{
		{"not ready", "@MANAGED60@" + of + `conditions: [{type: Ready, status: "False", reason: DoesNotExist, message: Issuer ca is missing}]}}`,
			"Certificate edge/cert of cert-manager fails: DoesNotExist: Issuer ca is missing"},
		{"late", "@MANAGED60@" + of + `renewalTime: "2025-12-30T00:00:00Z"}}`, "was to be renewed at 2025-12-30T00:00:00Z, and is not"},
		{"attempts", "@MANAGED60@" + of + `failedIssuanceAttempts: 1}}`, "fails, after 1 failed attempts"},
		{"in time", "@MANAGED60@" + of + `renewalTime: "2025-12-31T23:30:00Z"}}`, ""},
		{"issues now", "@MANAGED60@" + of + `conditions: [{type: Issuing, status: "True", reason: Renewing, message: m}]}}`, ""},
		{"gone", "@MANAGED60@" + strings.Replace(of, "name: cert,", "name: other,", 1) + "}}",
			"Certificate edge/cert of cert-manager is gone"},
		{"certificates were not read", "@MANAGED20@", ""},
		{"without a Certificate, and ends", "@CERT20@", "nothing renews it: cert-manager.io/certificate-name names no Certificate of " +
			"cert-manager; it was written by an unknown program"},
		{"written by", "@WRITTEN20@", `it was written by "kubectl" at 2025-11-01T00:00:00Z`},
		{"without a Certificate, and lasts", "@CERT60@", ""},
	} {
		in := input(t, []txtar.File{{Name: "both/cluster.yaml", Data: []byte(c.objects)}}, "both")
		if got := lines(Run(in, config), "NAV1018"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A cluster's Certificate is read by the annotation of the Secret that a Gateway names. Without the right to read it,
// there is no finding.
func TestCertificatesAreRead(t *testing.T) {
	objects := map[string]string{
		"/apis/networking.istio.io/v1/gateways": `{"items": [{"metadata": {"name": "edge", "namespace": "edge"}, "spec": {"selector": {"app": "edge"},
			"servers": [{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"], "tls": {"mode": "SIMPLE", "credentialName": "cert"}}]}}]}`,
		"/apis/cert-manager.io/v1/namespaces/edge/certificates/cert": `{"metadata": {"name": "cert", "namespace": "edge"},
			"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "DoesNotExist", "message": "no issuer"}]}}`,
	}
	managed := strings.Replace(secret(t, 60), "namespace: edge",
		"namespace: edge, annotations: {cert-manager.io/certificate-name: cert}", 1)
	raw, err := yaml.YAMLToJSON([]byte(managed))
	if err != nil {
		t.Fatal(err)
	}
	objects["/api/v1/namespaces/edge/secrets/cert"] = string(raw)
	for _, forbidden := range []bool{false, true} {
		api := apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
			switch text, is := objects[r.URL.Path]; {
			case forbidden && strings.Contains(r.URL.Path, "certificates"):
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"reason": "Forbidden", "message": "certificates are forbidden"}`)
			case is:
				fmt.Fprint(w, text)
			default:
				http.NotFound(w, r)
			}
		})
		in, err := Read(t.Context(), api, config.SystemNamespace)
		if err == nil {
			err = in.ReadSecrets(t.Context(), api, Input{}, config)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := lines(Run(in, config), "NAV1018")
		if forbidden == strings.Contains(got, "fails: DoesNotExist: no issuer") || forbidden != (in.Unread["Certificate"] != "") {
			t.Errorf("forbidden %v: %q, unread %v", forbidden, got, in.Unread)
		}
	}
}
