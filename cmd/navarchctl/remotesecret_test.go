package main

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/apiserver"
)

// The output is a Secret as istioctl makes it, with a kubeconfig that navarchd accepts. Only reading requests are sent.
func TestCreateRemoteSecret(t *testing.T) {
	var ca []byte
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		switch r.URL.Path {
		case "/api/v1/namespaces/kube-system":
			fmt.Fprint(w, `{"metadata": {"uid": "u-1"}}`)
		case "/api/v1/namespaces/istio-system/secrets/istio-reader-service-account-istio-remote-secret-token":
			fmt.Fprintf(w, `{"type": "kubernetes.io/service-account-token", "metadata": {"annotations": {"kubernetes.io/service-account.name": "istio-reader-service-account"}},
				"data": {"ca.crt": %q, "token": %q}}`, base64.StdEncoding.EncodeToString(ca), base64.StdEncoding.EncodeToString([]byte("their-token")))
		case "/api/v1/namespaces/istio-system/secrets/other":
			fmt.Fprint(w, `{"type": "Opaque", "data": {"token": "eA==", "ca.crt": "eA=="}}`)
		default:
			http.Error(w, `{"reason": "NotFound"}`, http.StatusNotFound)
		}
	}))
	defer api.Close()
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "x", "user": {"token": "ours"}}]}`,
		api.URL, base64.StdEncoding.EncodeToString(ca))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(args ...string) (string, error) {
		var out strings.Builder
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"create-remote-secret", "--kubeconfig", path}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, c := range []struct {
		args              []string
		name, key, server string
	}{
		{[]string{"--name", "west"}, "istio-remote-secret-west", "west", api.URL},
		{nil, "istio-remote-secret-u-1", "u-1", api.URL},
		{[]string{"--name", "west", "--type", "config", "--server", "https://10.0.0.1:6443"}, "istio-kubeconfig", "config", "https://10.0.0.1:6443"},
	} {
		out, err := create(c.args...)
		if err != nil {
			t.Fatal(err)
		}
		var secret corev1.Secret
		if err := yaml.UnmarshalStrict([]byte(strings.TrimSuffix(out, "---\n")), &secret); err != nil {
			t.Fatal(err)
		}
		config, err := apiserver.Inline([]byte(secret.StringData[c.key]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if secret.Name != c.name || secret.Namespace != "istio-system" || secret.Labels["istio/multiCluster"] != "true" || secret.Annotations["networking.istio.io/cluster"] == "" ||
			config.BearerToken != "their-token" || config.Host != c.server || string(config.CAData) != string(ca) || strings.Contains(out, "ours") {
			t.Errorf("%v: %s", c.args, out)
		}
	}
	for _, args := range [][]string{{"--name", ".."}, {"--secret-name", "other"}, {"--secret-name", "none"}, {"--type", "else"}, {"--auth-type", "plugin"}, {"--server", "http://a"}} {
		if out, err := create(args...); err == nil || out != "" {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}
