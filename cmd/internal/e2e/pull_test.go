package e2e

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// module is a WasmPlugin whose module is in a registry that wants a credential; its workloads are those of the
// WorkloadEntry.
const module = `
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: checked, namespace: shop}
spec:
  selector: {matchLabels: {app: client}}
  url: oci://registry.example.com/checked:1
  imagePullSecret: registry
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: client, namespace: shop}
spec: {address: 10.1.8.1, serviceAccount: client, labels: {app: client}}
`

const moduleName = "extenstions.istio.io/wasmplugin/shop.checked"

// registrySecret returns the Secret with a password of two registries.
func registrySecret(password string) string {
	config := fmt.Sprintf(`{"auths": {"registry.example.com": {"auth": %q}, "other.example.com": {"auth": "of-the-other"}}}`, password)
	return "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\nmetadata: {name: registry, namespace: shop}\ndata: {.dockerconfigjson: " +
		base64.StdEncoding.EncodeToString([]byte(config)) + "}\n"
}

// fetcher returns the node of a stock agent, which fetches modules, with a claimed workload and labels.
func fetcher(workload, ip, app string) *corev3.Node {
	n := node("shop", workload, ip)
	n.Metadata.Fields["ISTIO_VERSION"] = structpb.NewStringValue("1.31.0")
	labels, err := structpb.NewStruct(map[string]any{"app": app})
	if err != nil {
		panic(err)
	}
	n.Metadata.Fields["LABELS"] = structpb.NewStructValue(labels)
	for _, name := range []string{"istio.alpn", "envoy.filters.http.router", "envoy.filters.http.wasm"} {
		n.Extensions = append(n.Extensions, &corev3.Extension{Name: name})
	}
	return n
}

// given waits for the next configuration of the module on a stream, and returns its credential for the agent.
func given(stream deltaStream) (credential string, err error) {
	for {
		res, err := stream.Recv()
		if err != nil {
			return "", err
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce}); err != nil {
			return "", err
		}
		if !carries(res, moduleName) {
			continue
		}
		config, wasm := &corev3.TypedExtensionConfig{}, &httpwasmv3.Wasm{}
		if err := errors.Join(res.Resources[0].Resource.UnmarshalTo(config), config.TypedConfig.UnmarshalTo(wasm)); err != nil {
			return "", err
		}
		credential, is := wasm.GetConfig().GetVmConfig().GetEnvironmentVariables().GetKeyValues()["ISTIO_META_WASM_IMAGE_PULL_SECRET"]
		if !is {
			return "", errors.New("nothing says that a credential is needed")
		}
		return credential, nil
	}
}

// The agent of a workload that a WasmPlugin selects receives the password of the module's registry, a new one after a
// change of the Secret, and an empty answer after its deletion. A client that only claims the labels, or has no proof
// at all, receives no password. Nothing that navarchd shows or stores contains a password.
// Promise: security-workloads.md#identity-and-private-keys
func TestPulledModule(t *testing.T) {
	parallel(t)
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "services.yaml", services)
	write(t, dir, "module.yaml", module)
	write(t, dir, "secret.yaml", registrySecret("password-one"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	secure := rootsOnly(t, data)
	ask := func(ctx context.Context, creds credentials.TransportCredentials, address string, n *corev3.Node) deltaStream {
		stream, _ := openStreamAs(ctx, t, address, creds, n)
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Extension.URL(), ResourceNamesSubscribe: []string{moduleName}}); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	wants := func(what string, stream deltaStream, want string) {
		t.Helper()
		got, err := given(stream)
		for err == nil && got == "" && want != "" { // the Secret is sealed beside what else is read
			got, err = given(stream)
		}
		if err != nil || got != want {
			t.Fatalf("%s is given %q, want %q (%v)", what, got, want, err)
		}
	}
	as := func(account string) context.Context { return bearer(t.Context(), token(t, data, "shop", account)) }
	client := ask(as("client"), secure, d.secure, fetcher("client", "10.1.8.1", "client"))
	wants("the workload", client, `{"auths":{"registry.example.com":{"auth":"password-one"}}}`)
	wants("who claims its labels", ask(as("other"), secure, d.secure, fetcher("other", "10.1.8.2", "client")), "")
	wants("who proves nothing", ask(t.Context(), insecure.NewCredentials(), d.grpc, fetcher("plain", "10.1.8.3", "client")), "")
	again := fetcher("client", "10.1.8.4", "client")
	again.Id, again.Metadata.Fields["NAME"] = strings.Replace(again.Id, "client-0", "client-1", 1), structpb.NewStringValue("client-1")
	secrets, removed, err := secretsOf(t, secure, as("client"), d.secure, again, "kubernetes://registry")
	if err != nil || len(secrets) > 0 || len(removed) != 1 {
		t.Errorf("as a Secret of its own: sent %q, removed %q, %v", secrets, removed, err)
	}

	write(t, dir, "secret.yaml", registrySecret("password-two"))
	wants("the workload", client, `{"auths":{"registry.example.com":{"auth":"password-two"}}}`)
	text := shown(t, d, data, "client-0.shop", moduleName, "records/Secret//files/shop/registry")
	out, err := exec.Command(binary(t, "navarchctl"), "explain", "--server", d.http, "--proxy", "client-0.shop", moduleName).CombinedOutput()
	if text["navarchctl explain"] = string(out); err != nil {
		t.Errorf("explain: %v\n%s", err, out)
	}
	if dump := text["/debug/config_dump?proxyID=client-0.shop"]; !strings.Contains(dump, "[redacted]") || !strings.Contains(dump, "registry.example.com/checked") {
		t.Errorf("the dump does not show what the proxy has: %s", dump)
	}
	for where, content := range text {
		for _, password := range []string{"password-one", "password-two", "of-the-other"} {
			if strings.Contains(content, password) || strings.Contains(content, base64.StdEncoding.EncodeToString([]byte(password))[:12]) {
				t.Errorf("%s shows a password", where)
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, "secret.yaml")); err != nil {
		t.Fatal(err)
	}
	wants("the workload", client, "")
	if problems, err := get(d.http, "/debug/problems"); err != nil || !strings.Contains(problems, "there is no Secret shop/registry of type kubernetes.io/dockerconfigjson with a credential for registry.example.com") {
		t.Errorf("problems: %s %v", problems, err)
	}
}
