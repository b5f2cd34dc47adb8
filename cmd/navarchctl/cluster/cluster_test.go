package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

const patience = 20 * time.Second

// pods starts an API server with these Pods, which all selectors match, and which forwards ports by SPDY only.
func pods(t *testing.T, forward portforward.PortForwarder, all ...corev1.Pod) string {
	t.Helper()
	return apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		switch name, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/istio-system/pods/"), "/portforward"); {
		case r.Header.Get("Authorization") != "Bearer our-token":
			http.Error(w, "no token", http.StatusUnauthorized)
		case is && strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
			http.Error(w, "this API server knows no websockets", http.StatusBadRequest)
		case is:
			portforward.ServePortForward(w, r, forward, name, "", nil, time.Minute, patience, portforward.SupportedProtocols)
		case r.URL.Path == "/api/v1/namespaces/istio-system/pods":
			list := corev1.PodList{}
			for _, pod := range all {
				selected := true
				for want := range strings.SplitSeq(r.URL.Query().Get("labelSelector"), ",") {
					key, value, _ := strings.Cut(want, "=")
					selected = selected && pod.Labels[key] == value
				}
				if selected {
					list.Items = append(list.Items, pod)
				}
			}
			_ = json.NewEncoder(w).Encode(list)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"reason": "Forbidden", "message": "no %s"}`, r.URL.Path)
		}
	})
}

func replica(name, revision string, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: name, Labels: map[string]string{"app": "istiod", "istio.io/rev": revision}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if ready {
		p.Status.Conditions[1].Status = corev1.ConditionTrue
	}
	return p
}

func TestReplicas(t *testing.T) {
	going := replica("d", "gone", true)
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	draining := replica("e", "draining", false)
	draining.DeletionTimestamp = going.DeletionTimestamp
	draining.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	port := replica("b", "canary", true)
	port.Annotations = map[string]string{"prometheus.io/port": "9999"}
	other := replica("x", "default", true)
	other.Labels["app"] = "other"
	kubeconfig := pods(t, nil, port, replica("a", "default", true), replica("c", "new", false), going, draining, other)
	for _, one := range []struct {
		flags Flags
		want  string // names with ports, or of the error
	}{
		{Flags{}, "a:15014 b:9999 e:15014"},
		{Flags{Revision: "canary"}, "b:9999"},
		{Flags{Revision: "new"}, "context x, namespace istio-system: Pods with the labels app=istiod,istio.io/rev=new: none is ready: c (running, not ready)"},
		{Flags{Revision: "draining"}, "e:15014"},
		{Flags{Revision: "gone"}, "none is ready: d (it is being deleted)"},
		{Flags{Revision: "none"}, "context x, namespace istio-system: Pods with the labels app=istiod,istio.io/rev=none: no such Pod"},
		{Flags{Namespace: "elsewhere"}, "context x, namespace elsewhere: Pods with the labels app=istiod: the API server answered 403 Forbidden: no /api/v1/namespaces/elsewhere/pods"},
		{Flags{Context: "y"}, `--kubeconfig, context "y": context "y" does not exist`},
		{Flags{Kubeconfig: "/nowhere"}, "--kubeconfig: stat /nowhere: no such file or directory"},
	} {
		if one.flags.Kubeconfig == "" {
			one.flags.Kubeconfig = kubeconfig
		}
		if one.flags.Namespace == "" {
			one.flags.Namespace = "istio-system"
		}
		got := ""
		in, err := one.flags.Open()
		if err == nil {
			var all []*Pod
			all, _, err = in.Replicas(t.Context())
			for _, pod := range all {
				got += fmt.Sprintf(" %s:%d", pod.Name, pod.Monitoring)
			}
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, one.want) {
			t.Errorf("%+v: %q, want %q", one.flags, got, one.want)
		}
	}
}

// A kubeconfig exists by a flag, by the environment, or at its default path.
func TestGiven(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), ".kube", "config")); err == nil {
		t.Skip("this user has a kubeconfig")
	}
	if (&Flags{}).Given() {
		t.Error("given by nothing")
	}
	if !(&Flags{Context: "x"}).Given() || !(&Flags{Kubeconfig: "x"}).Given() {
		t.Error("not given by a flag")
	}
	t.Setenv("KUBECONFIG", "/x")
	if !(&Flags{}).Given() {
		t.Error("not given by the environment")
	}
}

// forwarder connects to a server for one port, and refuses the others.
type forwarder struct{ to string }

func (f forwarder) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 15014 {
		return fmt.Errorf("%s does not listen on %d", name, port)
	}
	conn, err := net.Dial("tcp", f.to)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, err = io.Copy(stream, conn)
	return err
}

// Requests reach a Pod's port, several at once over one link, and large ones; a port without a listener is an error
// with that reason, and later connections still work.
func TestForward(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Host != "localhost:15014" {
			http.Error(w, fmt.Sprint(r.Host, err), http.StatusBadRequest)
		}
		_, _ = w.Write(body)
	}))
	defer web.Close()
	f := Flags{Kubeconfig: pods(t, forwarder{web.Listener.Addr().String()}, replica("a", "default", true)), Namespace: "istio-system"}
	in, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := in.Replicas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pod := all[0]
	defer pod.Close()
	client := pod.Client()
	client.Timeout = patience
	if _, err := client.Get("http://localhost:1/"); err == nil || !strings.Contains(err.Error(), "Pod istio-system/a, port 1: ") || !strings.Contains(err.Error(), "a does not listen on 1") || strings.Count(err.Error(), "Pod istio-system/a") != 1 {
		t.Errorf("a port that nobody listens on: %v", err)
	}
	done := make(chan error, 8)
	for range cap(done) {
		go func() {
			res, err := client.Post("http://localhost:15014/", "text/plain", strings.NewReader(large))
			if err != nil {
				done <- err
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err == nil && string(body) != large {
				err = fmt.Errorf("status %d, %d bytes", res.StatusCode, len(body))
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := pod.Dial(ended, 15014); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
