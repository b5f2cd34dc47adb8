package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/redirect"
	"navarch.io/navarch/deploy/redirect/kernel"
	"navarch.io/navarch/store/apiserver"
)

// patience is the time limit for reading the Pod; then the runtime has to retry.
const patience = 10 * time.Second

// plugin answers one request of a runtime, and returns the exit status.
func plugin(ctx context.Context, r request, in io.Reader, out io.Writer) int {
	answer, f := r.answer(ctx, in)
	if f != nil {
		f.Version = answer.version
		_ = json.NewEncoder(out).Encode(f) // the exit status reports it, too
		return 1
	}
	if answer.body != nil {
		if _, err := out.Write(answer.body); err != nil {
			return 1
		}
	}
	return 0
}

// reply is the answer to the runtime.
type reply struct {
	version string
	body    []byte
}

func (r request) answer(ctx context.Context, in io.Reader) (reply, *failure) {
	if r.command == "VERSION" {
		body, _ := json.Marshal(map[string]any{"cniVersion": versions[len(versions)-1], "supportedVersions": versions}) // cannot fail
		return reply{body: body}, nil
	}
	c, f := readConfiguration(in)
	if f != nil {
		return reply{version: versions[len(versions)-1]}, f
	}
	out := reply{version: c.Version}
	switch r.command {
	case "ADD":
		if len(c.Previous) == 0 {
			return out, fail(codeConfig, "no prevResult", errors.New("this plugin comes after the one that makes the Pod's interfaces"))
		}
		out.body = c.Previous
		return out, r.add(ctx, c)
	case "CHECK":
		return out, r.check(ctx, c)
	case "STATUS":
		if _, err := os.Stat(c.Kubernetes.Kubeconfig); err != nil {
			return out, fail(50, "not ready", err)
		}
		return out, nil
	case "DEL", "GC": // the kernel removes the rules with the namespace
		return out, nil
	}
	return out, fail(codeEnvironment, "CNI_COMMAND", fmt.Errorf("%.20q: want one of ADD, DEL, CHECK, GC, STATUS, VERSION", r.command))
}

// add redirects a Pod's traffic, if it has a sidecar. An error prevents the Pod's start, so that no traffic passes in
// clear.
func (r request) add(ctx context.Context, c configuration) *failure {
	config, yes, f := r.decide(ctx, c)
	if f != nil || !yes {
		return f
	}
	if err := kernel.In(r.netns, func() error { return kernel.Apply(config.Rules()) }); err != nil {
		return fail(codeRules, "traffic of the Pod cannot be redirected", err)
	}
	return nil
}

// check returns an error if a Pod's rules are absent.
func (r request) check(ctx context.Context, c configuration) *failure {
	_, yes, f := r.decide(ctx, c)
	if f != nil || !yes {
		return f
	}
	err := kernel.In(r.netns, func() error {
		there, err := kernel.Present()
		if err == nil && !there {
			err = kernel.ErrAbsent
		}
		return err
	})
	if err != nil {
		return fail(codeRules, "redirection", err)
	}
	return nil
}

// decide reads the Pod, and returns its redirection; false: the plugin does not apply to it.
func (r request) decide(ctx context.Context, c configuration) (config redirect.Config, yes bool, f *failure) {
	namespace, name := r.args["K8S_POD_NAMESPACE"], r.args["K8S_POD_NAME"]
	if name == "" || namespace == "" || slices.Contains(c.Kubernetes.ExcludeNamespaces, namespace) {
		return config, false, nil
	}
	if r.netns == "" {
		return config, false, fail(codeEnvironment, "CNI_NETNS", errors.New("it is empty"))
	}
	client, err := apiserver.New(c.Kubernetes.Kubeconfig)
	if err != nil {
		return config, false, fail(codeConfig, "kubeconfig", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pod, err := find(ctx, client, namespace, name, r.args["K8S_POD_UID"])
	if err != nil {
		return config, false, fail(codeAgain, fmt.Sprintf("Pod %s/%s", namespace, name), err)
	}
	if reason := leftAlone(pod); reason != "" {
		return config, false, nil
	}
	if config, err = configOf(pod); err != nil {
		return config, false, fail(codeRules, fmt.Sprintf("Pod %s/%s cannot be redirected as its annotations say", namespace, name), err)
	}
	return config, true, nil
}

// find reads a Pod. A Pod of the same name with another UID is a predecessor or successor, and yields an error.
func find(ctx context.Context, client *apiserver.Client, namespace, name, uid string) (*corev1.Pod, error) {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	pod := &corev1.Pod{}
	if err := client.Do(ctx, http.MethodGet, path, nil, pod); err != nil {
		return nil, err
	}
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey] // a static Pod, whose UID in the runtime differs
	if uid != "" && string(pod.UID) != uid && !mirror {
		return nil, fmt.Errorf("the API server has one with UID %s, and the runtime asks for %s", pod.UID, uid)
	}
	return pod, nil
}
