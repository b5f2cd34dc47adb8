//go:build kube

package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/store/programs"
)

// abandoned is set in a process that starts a cluster and waits to be killed.
const abandoned = "NAVARCH_TESTCLUSTER_ABANDONED"

func TestMain(m *testing.M) {
	cluster.Init()
	if os.Getenv(abandoned) != "" {
		abandon()
		return
	}
	os.Exit(m.Run())
}

// One cluster supports what a Deployment needs: several nodes, Services by name across nodes, volumes, probes, hooks,
// logs, exec and Jobs.
func TestKubeCluster(t *testing.T) {
	t.Parallel()
	app := programs.For(t, "app")
	began := time.Now()
	c := cluster.ForTest(t, cluster.Options{Images: image.Table{"app": {Programs: map[string]string{"/usr/local/bin/app": app}, Entrypoint: []string{"app"}}}})
	t.Logf("started in %s", time.Since(began))
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	at := func(what string) { t.Logf("%s after %s", what, time.Since(began)) }
	c.MustKubectl(t, "", "apply", "-f", "testdata/web.yaml", "-f", "testdata/pods.yaml", "-f", "testdata/scaled.yaml")
	c.MustKubectl(t, "", "rollout", "status", "deploy/web", "--timeout=120s")
	c.MustKubectl(t, "", "wait", "--for=condition=Ready", "--timeout=120s", "pod/client", "pod/graceful")
	at("Pods ready")
	pods := strings.Fields(c.MustKubectl(t, "", "get", "pods", "-l", "app=web", "-o", "name"))
	t.Run("at once", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"web": func(t *testing.T) {
				volumes(t, c, client, pods[0])
				services(t, c)
			},
			"probes":     func(t *testing.T) { probes(t, c) },
			"deletion":   func(t *testing.T) { deletion(t, c) },
			"job":        func(t *testing.T) { job(t, c) },
			"user":       func(t *testing.T) { user(t, c) },
			"forward":    func(t *testing.T) { forward(t, c) },
			"autoscaler": func(t *testing.T) { autoscaler(t, c) },
			"balancers":  func(t *testing.T) { balancers(t, c) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
				at(name)
			})
		}
	})
	before := descendants(t, c.PID())
	c.Close()
	gone(t, before, c.Dir())
}

// call connects from the client Pod to the Service by its name, and returns the answering Pod; "" without an answer: a
// Pod that has ended sends nothing.
func call(t *testing.T, c *cluster.Cluster) (name, version string) {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "", "exec", "client", "--", "timeout", "5", "bash", "-c", `exec 3<>/dev/tcp/web/80 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3`)
	_, body, _ := strings.Cut(out, "\r\n\r\n")
	var answer struct{ Name, Version string }
	if err = errors.Join(err, json.Unmarshal([]byte(body), &answer)); err != nil {
		t.Logf("%v %s", err, out)
	}
	return answer.Name, answer.Version
}

// services checks that one name reaches Pods of every node, and after a rolling update only the new Pods.
func services(t *testing.T, c *cluster.Cluster) {
	nodes := map[string]bool{}
	cluster.Await(t, "answers of three nodes", func() string {
		if name, _ := call(t, c); name != "" {
			_, node, _ := strings.Cut(name, "@")
			nodes[node] = true
		}
		if len(nodes) < 3 {
			return fmt.Sprint(nodes)
		}
		return ""
	})
	c.MustKubectl(t, "", "patch", "deploy", "web", "--type=json", "-p", `[{"op": "replace", "path": "/spec/template/spec/containers/0/args/5", "value": "v2"}]`)
	c.MustKubectl(t, "", "rollout", "status", "deploy/web", "--timeout=120s")
	cluster.Await(t, "five answers of the new version in a row", func() string {
		for range 5 {
			if _, version := call(t, c); version != "v2" {
				return "version " + version
			}
		}
		return ""
	})
}

// volumes checks that files exist before the program starts, that the API server accepts a token, and that edits of a
// ConfigMap arrive.
func volumes(t *testing.T, c *cluster.Cluster, client kubernetes.Interface, pod string) {
	if got := c.MustKubectl(t, "", "exec", pod, "-c", "app", "--", "cat", "/scratch/state", "/etc/conf/greeting"); got != "initialized\nhello" {
		t.Errorf("files: %q", got)
	}
	token := c.MustKubectl(t, "", "exec", pod, "-c", "app", "--", "cat", "/var/run/secrets/tokens/istio-token")
	review, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"istio-ca"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := review.Status; !s.Authenticated || s.User.Username != "system:serviceaccount:default:default" || "pod/"+s.User.Extra["authentication.kubernetes.io/pod-name"][0] != pod {
		t.Errorf("token: %+v", s)
	}
	c.MustKubectl(t, "", "patch", "configmap", "conf", "-p", `{"data": {"greeting": "bye"}}`)
	cluster.Await(t, "the new ConfigMap", func() string {
		if got := c.MustKubectl(t, "", "exec", pod, "-c", "app", "--", "cat", "/etc/conf/greeting"); got != "bye" {
			return got
		}
		return ""
	})
	if _, err := c.Kubectl(t.Context(), "", "exec", pod, "-c", "app", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("exec of a command that fails: %v", err)
	}
	if got := c.MustKubectl(t, "standard input", "exec", "-i", pod, "-c", "app", "--", "cat"); got != "standard input" {
		t.Errorf("exec with input: %q", got)
	}
}

// probes checks that the readiness probe decides about the endpoint, and the liveness probe about a restart.
func probes(t *testing.T, c *cluster.Cluster) {
	endpoint := func(want string) {
		t.Helper()
		cluster.Await(t, "endpoint ready: "+want, func() string {
			if got := c.MustKubectl(t, "", "get", "endpointslice", "-l", "kubernetes.io/service-name=probed", "-o", "jsonpath={.items[*].endpoints[*].conditions.ready}"); got != want {
				return got
			}
			return ""
		})
	}
	c.MustKubectl(t, "", "wait", "--for=jsonpath={.status.containerStatuses[0].started}=true", "--timeout=60s", "pod/probed")
	endpoint("false")
	c.MustKubectl(t, "", "exec", "probed", "--", "touch", "/tmp/ready")
	endpoint("true")
	c.MustKubectl(t, "", "exec", "probed", "--", "touch", "/tmp/dead")
	c.MustKubectl(t, "", "wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "--timeout=60s", "pod/probed")
	endpoint("false")
}

// deletion checks the end of a Pod: its hook runs, then the program gets SIGTERM long before the grace period ends, and
// the log can be followed to its end.
func deletion(t *testing.T, c *cluster.Cluster) {
	type log struct {
		text string
		err  error
	}
	followed := make(chan log, 1)
	go func() {
		text, err := c.Kubectl(t.Context(), "", "logs", "-f", "graceful")
		followed <- log{text, err}
	}()
	c.MustKubectl(t, "", "delete", "pod", "graceful", "--timeout=60s")
	if l := <-followed; l.err != nil && !strings.Contains(l.err.Error(), "not found") || l.err == nil && l.text != "up\nstopping\nterminated\n" {
		t.Errorf("log: %q %v", l.text, l.err)
	}
}

// job checks that a Job completes when its application ends with success, although its sidecar would continue.
func job(t *testing.T, c *cluster.Cluster) {
	c.MustKubectl(t, "", "wait", "--for=condition=Complete", "--timeout=120s", "job/job")
	if got := c.MustKubectl(t, "", "get", "pod", "-l", "job-name=job", "-o", "jsonpath={.items[*].status.containerStatuses[0].state.terminated.message}"); got != "done\n" {
		t.Errorf("termination message %q", got)
	}
}

// user checks a program's user and groups, that it can write to its output and to volumes, and that it knows its
// addresses.
func user(t *testing.T, c *cluster.Cluster) {
	if os.Geteuid() != 0 {
		t.Skip("a user namespace has one user alone")
	}
	c.MustKubectl(t, "", "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", "pod/user")
	addresses := c.MustKubectl(t, "", "get", "pod", "user", "-o", "jsonpath={.status.podIP} {.status.hostIP}")
	if got, want := c.MustKubectl(t, "", "logs", "user"), "1337:1338 "+addresses+"\nuser1339\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// forward checks that kubectl port-forward transports connections to a Pod.
func forward(t *testing.T, c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.KubectlCommand(ctx, "port-forward", "--address=127.0.0.1", "pod/client", ":8080")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it is killed
	defer cancel()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	answer, err := http.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || !strings.Contains(string(body), `"host":"client/`) {
		t.Errorf("%s %v", body, err)
	}
}

// autoscaler checks that the controller reads the rate from the Pods' own metrics pages, and their processor use: it
// scales up under load, and down without.
func autoscaler(t *testing.T, c *cluster.Cluster) {
	c.MustKubectl(t, "", "wait", "--for=condition=Available", "--timeout=120s", "apiservice/v1beta1.metrics.k8s.io", "apiservice/v1beta2.custom.metrics.k8s.io")
	replicas := func(what string, enough func(int) bool) {
		t.Helper()
		cluster.Await(t, what, func() string {
			text := c.MustKubectl(t, "", "get", "hpa", "scaled", "-o", "jsonpath={.status.currentReplicas} {.status.currentMetrics}")
			count, _, _ := strings.Cut(text, " ")
			if n, _ := strconv.Atoi(count); !enough(n) {
				return text
			}
			return ""
		})
	}
	replicas("scaled up", func(n int) bool { return n > 1 })
	cluster.Await(t, "the use of a processor", func() string {
		out, err := c.Kubectl(t.Context(), "", "top", "pod", "load", "--no-headers")
		if fields := strings.Fields(out); err != nil || len(fields) != 3 || strings.HasPrefix(fields[1], "0") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	c.MustKubectl(t, "", "delete", "pod", "load", "--timeout=60s")
	replicas("scaled down", func(n int) bool { return n == 1 })
}

// descendants returns a process and all processes below it, with the times of their starts.
func descendants(t *testing.T, root int) map[int]string {
	t.Helper()
	all := map[int]string{root: started(root)}
	for grew := true; grew; {
		grew = false
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range stats {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			text, _ := os.ReadFile(path) // fails if the process has ended
			_, rest, _ := strings.Cut(string(text), ") ")
			var state string
			var parent int
			_, _ = fmt.Sscan(rest, &state, &parent)
			if _, known := all[pid]; !known && all[parent] != "" {
				all[pid], grew = started(pid), true
			}
		}
	}
	return all
}

// started returns the start time of a process in the kernel's ticks; "": it does not exist, or is a zombie.
func started(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // gone
	_, rest, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(rest); len(fields) > 19 && fields[0] != "Z" {
		return fields[19]
	}
	return ""
}

// gone waits until nothing of a cluster is left: no processes, folder or mounts. Its namespaces have no names, and end
// with the processes.
func gone(t *testing.T, before map[int]string, dir string) {
	t.Helper()
	if len(before) < 6 {
		t.Errorf("the cluster had %d processes", len(before))
	}
	cluster.Await(t, "nothing left", func() string {
		for pid, at := range before {
			if at != "" && started(pid) == at {
				return fmt.Sprintf("process %d lives", pid)
			}
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Sprintf("%s: %v", dir, err)
		}
		if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), dir) {
			return fmt.Sprintf("%s is mounted (%v)", dir, err)
		}
		return ""
	})
}

// When the process that started a cluster is killed, the cluster ends and nothing is left. Another cluster runs at the
// same time.
func TestKubeClusterEndsWithItsStarter(t *testing.T) {
	t.Parallel()
	if _, err := cluster.Possible(); err != nil {
		t.Skip(err)
	}
	starter := exec.Command("/proc/self/exe")
	starter.Env = append(os.Environ(), abandoned+"=1")
	starter.Stderr = os.Stderr
	out, err := starter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := starter.Start(); err != nil {
		t.Fatal(err)
	}
	defer starter.Wait() //nolint:errcheck // it was killed
	defer starter.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	if _, err := fmt.Sscan(line, &pid, &dir); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	before := descendants(t, pid)
	if err := starter.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, before, dir)
}

// abandon starts a small cluster, prints its process, and waits to be killed.
func abandon() {
	c, err := cluster.Start(context.Background(), cluster.Options{Nodes: 1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.PID(), c.Dir())
	select {}
}
