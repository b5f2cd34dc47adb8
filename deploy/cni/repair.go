package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/redirect/kernel"
	"navarch.io/navarch/store/apiserver"
)

// repair redirects Pods that started before the plugin was installed. Their init container istio-validation fails and
// restarts until they are redirected. Only the right to list Pods is needed.
type repair struct {
	log    *slog.Logger
	client *apiserver.Client
	node   string
	proc   string
	// failures are the logged errors by Pod name.
	failures map[string]string
}

// newRepair returns the repair of this node; nil: the node's name is unknown.
func (i *installer) newRepair() (*repair, error) {
	if i.node == "" {
		return nil, nil
	}
	client, err := apiserver.New("")
	if err != nil {
		return nil, err
	}
	return &repair{log: i.log, client: client, node: i.node, proc: i.proc, failures: map[string]string{}}, nil
}

// once repairs the Pods of the node that wait. Errors are logged.
func (r *repair) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := &corev1.PodList{}
	if err := r.client.Do(ctx, http.MethodGet, "/api/v1/pods?fieldSelector="+url.QueryEscape("spec.nodeName="+r.node), nil, pods); err != nil {
		r.log.Error("Pods of the node cannot be listed, which is tried again", "error", err)
		return
	}
	failures := map[string]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		name := pod.Namespace + "/" + pod.Name
		if leftAlone(pod) != "" || !waits(pod) {
			continue
		}
		done, err := r.pod(pod)
		switch {
		case err != nil:
			if failures[name] = err.Error(); r.failures[name] != err.Error() {
				r.log.Error("a Pod that started without the plugin cannot be redirected", "pod", name, "error", err)
			}
		case done:
			r.log.Info("a Pod that started without the plugin is redirected now", "pod", name)
		}
	}
	r.failures = failures
}

// waits reports whether a Pod's validation has not succeeded yet.
func waits(pod *corev1.Pod) bool {
	for _, s := range pod.Status.InitContainerStatuses {
		if s.Name == validationContainer {
			return s.State.Terminated == nil || s.State.Terminated.ExitCode != 0
		}
	}
	return false
}

// pod applies a Pod's rules in its network namespace, and reports whether they were absent.
func (r *repair) pod(pod *corev1.Pod) (done bool, err error) {
	config, err := configOf(pod)
	if err != nil {
		return false, err
	}
	space, err := r.namespace(string(pod.UID))
	if err != nil {
		return false, err
	}
	err = kernel.In(space, func() error {
		there, err := kernel.Present()
		if err != nil || there {
			return err
		}
		done = true
		return kernel.Apply(config.Rules())
	})
	return done && err == nil, err
}

// namespace returns the path of a Pod's network namespace: that of any process whose control group contains the Pod's
// UID. The namespace of the node's own processes is rejected. The error reports that there is no such process.
func (r *repair) namespace(uid string) (string, error) {
	if uid == "" {
		return "", fmt.Errorf("the Pod has no UID")
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	processes, err := os.ReadDir(r.proc)
	if err != nil {
		return "", err
	}
	for _, p := range processes {
		dir := filepath.Join(r.proc, p.Name())
		if !inGroupOf(filepath.Join(dir, "cgroup"), uid) {
			continue
		}
		path := filepath.Join(dir, "ns", "net")
		if space, err := os.Readlink(path); err == nil && space != own { // the process may have ended
			return path, nil
		}
	}
	return "", fmt.Errorf("no process of the Pod is found in %s", r.proc)
}

// inGroupOf reports whether a process is in a control group of a Pod; systemd's names have underscores in UIDs.
func inGroupOf(path, uid string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	other := strings.ReplaceAll(uid, "-", "_")
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), "pod"+uid) || strings.Contains(lines.Text(), "pod"+other) {
			return true
		}
	}
	return false
}
