package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/deploy/redirect/kernel"
	"navarch.io/navarch/deploy/testcluster/netns"
	"navarch.io/navarch/store/apiserver"
)

// sidecar returns a Pod as injection leaves it for the plugin to redirect; change may modify it.
func sidecar(change func(*corev1.Pod)) *corev1.Pod {
	user := int64(1337)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "6a2f-1", Annotations: map[string]string{"sidecar.istio.io/status": "{}"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: validationContainer}},
			Containers:     []corev1.Container{{Name: "app"}, {Name: proxyContainer, Args: []string{"proxy", "sidecar"}, SecurityContext: &corev1.SecurityContext{RunAsUser: &user}}},
		},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: validationContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 126}}}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestWhichPods(t *testing.T) {
	for want, change := range map[string]func(*corev1.Pod){
		"":                            nil,
		"it is in the node's network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"it has no proxy":             func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] },
		"a container of its own redirects it": func(p *corev1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: initContainer})
		},
		"it was not injected":         func(p *corev1.Pod) { p.Annotations = nil },
		"it has said no to injection": func(p *corev1.Pod) { p.Labels = map[string]string{"sidecar.istio.io/inject": "false"} },
		"it has an agent without Envoy": func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "DISABLE_ENVOY", Value: "true"}}
		},
		"its proxy is a gateway":              func(p *corev1.Pod) { p.Spec.Containers[1].Args = []string{"proxy", "router"} },
		"its traffic is not to be redirected": func(p *corev1.Pod) { p.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" },
	} {
		if got := leftAlone(sidecar(change)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for text, want := range map[string]bool{"": true, "run": true, "run --type router": false, "run --type=router --x": false, "--type sidecar": true, "proxy sidecar --x": true, "proxy waypoint": false} {
		if got := isSidecar(strings.Fields(text)); got != want {
			t.Errorf("%q runs a sidecar: %t", text, got)
		}
	}
	native := sidecar(func(p *corev1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = append(p.Spec.InitContainers, p.Spec.Containers[1]), p.Spec.Containers[:1]
	})
	if got := leftAlone(native); got != "" {
		t.Errorf("a native sidecar: %s", got)
	}
}

// DNS to the servers that a Pod states is captured. If the kubelet writes the Pod's resolv.conf, DNS to all servers is
// captured.
func TestWhichDNS(t *testing.T) {
	for policy, want := range map[corev1.DNSPolicy]string{corev1.DNSNone: "false [127.0.0.1 fd00::a]", corev1.DNSClusterFirst: "true []", corev1.DNSDefault: "true []"} {
		c, err := configOf(sidecar(func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"}}
			p.Spec.DNSPolicy, p.Spec.DNSConfig = policy, &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1", "fd00::a"}}
		}))
		if got := fmt.Sprint(c.DNSAll, c.DNSServers); err != nil || got != want {
			t.Errorf("%s: all %s, %v; want %s", policy, got, err, want)
		}
	}
	none := func(p *corev1.Pod) {
		p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.0.0.1", "x"}}
	}
	if c, err := configOf(sidecar(none)); err == nil || !strings.Contains(err.Error(), "spec.dnsConfig.nameservers[1]: ") {
		t.Errorf("%+v %v", c, err)
	}
}

// api simulates an API server with one Pod, and returns a kubeconfig for it.
func api(t *testing.T, pod *corev1.Pod) (kubeconfig string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case pod == nil:
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/api/v1/namespaces/shop/pods/web-1":
			_ = json.NewEncoder(w).Encode(pod)
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=node-1":
			_ = json.NewEncoder(w).Encode(corev1.PodList{Items: []corev1.Pod{*pod}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "x", "user": {"token": "t"}}]}`, s.URL, ca)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// podSpace returns the path of a new network namespace with a process in it. It skips the test if none can be created.
func podSpace(t *testing.T) (path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	space, err := netns.New()
	if err != nil {
		t.Skipf("network namespaces need the right to make them: %v", err)
	}
	defer space.Close()
	process := exec.Command("sleep", "3600")
	if err := space.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	return fmt.Sprintf("/proc/%d/ns/net", process.Process.Pid)
}

func present(t *testing.T, space string) (is bool) {
	t.Helper()
	if err := kernel.In(space, func() (err error) { is, err = kernel.Present(); return err }); err != nil {
		t.Fatal(err)
	}
	return is
}

const previous = `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"10.1.2.3/24"}]}`

// speak runs the plugin for one request of the CNI protocol. It returns the exit status, and the output that a runtime
// reads.
func speak(command, space, kubeconfig, prevResult string) (status int, answer string) {
	env := map[string]string{"CNI_COMMAND": command, "CNI_NETNS": space, "CNI_IFNAME": "eth0", "CNI_CONTAINERID": "c1",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1;K8S_POD_UID=6a2f-1"}
	conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "type": "navarch-cni", "kubernetes": {"kubeconfig": %q, "excludeNamespaces": ["kube-system"]}`, kubeconfig)
	if prevResult != "" {
		conf += `, "prevResult": ` + prevResult
	}
	var out bytes.Buffer
	status = plugin(context.Background(), environment(func(k string) string { return env[k] }), strings.NewReader(conf+"}"), &out)
	return status, strings.TrimSpace(out.String())
}

// A Pod with a sidecar is redirected before any of its containers starts; the plugin's result is that of the previous
// plugin. The rules stay when the runtime deletes the Pod, until its namespace ends.
func TestAdd(t *testing.T) {
	space, kubeconfig := podSpace(t), api(t, sidecar(nil))
	if status, answer := speak("CHECK", space, kubeconfig, previous); status == 0 {
		t.Errorf("a Pod without rules is as it should be: %s", answer)
	}
	for range 2 {
		if status, answer := speak("ADD", space, kubeconfig, previous); status != 0 || answer != previous {
			t.Errorf("%d %s", status, answer)
		}
	}
	if !present(t, space) {
		t.Fatal("no rules")
	}
	for _, command := range []string{"CHECK", "DEL", "GC", "STATUS"} {
		if status, answer := speak(command, space, kubeconfig, previous); status != 0 || answer != "" {
			t.Errorf("%s: %d %s", command, status, answer)
		}
	}
	if !present(t, space) {
		t.Error("DEL has removed the rules")
	}
}

// A Pod without a sidecar gets no rules. Settings that cannot be parsed, or Pods that cannot be read, prevent the
// start.
func TestAddOthers(t *testing.T) {
	space := podSpace(t)
	if status, answer := speak("ADD", space, api(t, sidecar(func(p *corev1.Pod) { p.Annotations = nil })), previous); status != 0 || answer != previous {
		t.Errorf("a Pod without sidecar: %d %s", status, answer)
	}
	for what, test := range map[string]struct {
		kubeconfig string
		code       int
	}{
		"annotations that mean nothing": {api(t, sidecar(func(p *corev1.Pod) { p.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http" })), codeRules},
		"the Pod before it":             {api(t, sidecar(func(p *corev1.Pod) { p.UID = "other" })), codeAgain},
		"an API server that fails":      {api(t, nil), codeAgain},
		"no kubeconfig":                 {"/nowhere", codeConfig},
	} {
		status, answer := speak("ADD", space, test.kubeconfig, previous)
		var f failure
		if err := json.Unmarshal([]byte(answer), &f); err != nil || status == 0 || f.Code != test.code || f.Version != "1.0.0" || f.Message == "" {
			t.Errorf("%s: %d %s", what, status, answer)
		}
	}
	if present(t, space) {
		t.Error("there are rules")
	}
	kubeconfig := api(t, sidecar(nil))
	if status, answer := speak("ADD", "/nowhere", kubeconfig, previous); status == 0 || !strings.Contains(answer, "/nowhere") {
		t.Errorf("a namespace that is not there: %d %s", status, answer)
	}
}

func TestProtocol(t *testing.T) {
	if status, answer := speak("VERSION", "", "", ""); status != 0 || !strings.Contains(answer, `"supportedVersions":["0.3.0"`) {
		t.Errorf("%d %s", status, answer)
	}
	for what, test := range map[string]struct {
		command, conf string
		code          int
	}{
		"no result of a plugin before": {"ADD", `{"cniVersion": "1.0.0"}`, codeConfig},
		"an unknown command":           {"REMOVE", `{"cniVersion": "1.0.0"}`, codeEnvironment},
		"a version of the future":      {"ADD", `{"cniVersion": "9.0.0"}`, 1},
		"no JSON":                      {"ADD", `{`, codeDecode},
		"a flood":                      {"ADD", strings.Repeat(" ", maxConfiguration+1), codeDecode},
		"not ready":                    {"STATUS", `{"cniVersion": "1.1.0", "kubernetes": {"kubeconfig": "/nowhere"}}`, 50},
	} {
		var out bytes.Buffer
		status := plugin(t.Context(), request{command: test.command}, strings.NewReader(test.conf), &out)
		var f failure
		if err := json.Unmarshal(out.Bytes(), &f); err != nil || status == 0 || f.Code != test.code || f.Version == "" {
			t.Errorf("%s: %d %s", what, status, &out)
		}
	}
	// A request without a Pod, or of an excluded namespace, is passed on without a request to the API server.
	for _, args := range []map[string]string{{}, {"K8S_POD_NAMESPACE": "kube-system", "K8S_POD_NAME": "x"}} {
		var out bytes.Buffer
		conf := `{"cniVersion": "1.0.0", "kubernetes": {"kubeconfig": "/nowhere", "excludeNamespaces": ["kube-system"]}, "prevResult": ` + previous + `}`
		if status := plugin(t.Context(), request{command: "ADD", args: args}, strings.NewReader(conf), &out); status != 0 || out.String() != previous {
			t.Errorf("%v: %d %s", args, status, &out)
		}
	}
}

// A Pod that started before the plugin was installed is redirected without a restart: its processes are found by their
// control group.
func TestRepair(t *testing.T) {
	space := podSpace(t)
	proc := t.TempDir()
	process := func(pid, cgroup, space string) {
		dir := filepath.Join(proc, pid)
		if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(space, filepath.Join(dir, "ns", "net")); err != nil {
			t.Fatal(err)
		}
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	process("10", "0::/kubepods.slice/kubepods-pod6a2f_1.slice/a", own) // of the node's network
	process("11", "0::/kubepods.slice/kubepods-pod6a2f_2.slice/b", "/nowhere")
	process("12", "0::/kubepods.slice/kubepods-pod6a2f_1.slice/c", space)
	var log bytes.Buffer
	repaired := func(pod *corev1.Pod) bool {
		client, err := apiserver.New(api(t, pod))
		if err != nil {
			t.Fatal(err)
		}
		r := &repair{log: slog.New(slog.NewTextHandler(&log, nil)), client: client, node: "node-1", proc: proc, failures: map[string]string{}}
		r.once(t.Context())
		r.once(t.Context())
		return present(t, space)
	}
	if repaired(sidecar(func(p *corev1.Pod) { p.Annotations = nil })) {
		t.Error("a Pod without sidecar is redirected")
	}
	if repaired(sidecar(func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].State.Terminated.ExitCode = 0 })) {
		t.Error("a Pod whose validation has passed is touched")
	}
	if repaired(sidecar(func(p *corev1.Pod) { p.UID = "9999" })) || strings.Count(log.String(), "no process of the Pod") != 1 {
		t.Errorf("a Pod without a process: %s", &log)
	}
	if !repaired(sidecar(nil)) || strings.Count(log.String(), "is redirected now") != 1 {
		t.Errorf("a Pod that started too early is not redirected: %s", &log)
	}
}
