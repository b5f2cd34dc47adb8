package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/testcluster/container"
	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/deploy/testcluster/lifecycle"
	"navarch.io/navarch/deploy/testcluster/logs"
	"navarch.io/navarch/deploy/testcluster/podenv"
	"navarch.io/navarch/deploy/testcluster/probe"
)

// runs are the runs of one container: the current one, and the output of the newest two.
type runs struct {
	spec          *corev1.Container
	current       *container.Container // nil: not running
	log, previous *logs.Log
}

// act starts an action of the machine, without waiting for it.
func (p *pod) act(ctx context.Context, a lifecycle.Action) {
	p.work.Go(func() {
		if a.Start {
			p.start(ctx, a.Container)
		} else {
			p.stop(ctx, a.Container, a.Grace)
		}
	})
}

// containerOf returns the specification of a container by its name.
func containerOf(object *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{object.Spec.InitContainers, object.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// unstarted is the error of a failed start, with the kubelet's reason.
type unstarted struct {
	reason string
	err    error
}

func (u unstarted) Error() string { return u.err.Error() }

// start runs a container until it ends, with its hook and its probes.
func (p *pod) start(ctx context.Context, name string) {
	spec := containerOf(p.object.Load(), name)
	settings, err := p.settings(spec)
	if err != nil {
		reason := "CreateContainerError"
		if u := (unstarted{}); errors.As(err, &u) {
			reason = u.reason
		}
		p.send(func() { p.machine.Failed(name, reason, err.Error(), time.Now(), 2*time.Second) })
		return
	}
	defer os.RemoveAll(settings.Root)
	id := newID()
	running, log, err := p.begin(spec, settings)
	at := time.Now()
	p.send(func() { p.machine.Begun(name, id, at) })
	if err != nil {
		p.send(func() { p.machine.Exited(name, 128, 0, "failed to start: "+err.Error(), at) })
		return
	}
	one, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { p.watch(one, spec, running, &watching) })
	<-running.Done()
	cancel()
	watching.Wait() // all results of this run's hooks and probes precede the next run
	log.Close()
	p.mu.Lock()
	p.runs[name].current = nil
	p.mu.Unlock()
	exit, message := running.Exit(), p.terminationMessage(spec)
	p.send(func() { p.machine.Exited(name, exit.Code, exit.Signal, message, time.Now()) })
}

// begin starts the process; its output is stored even if the start fails.
func (p *pod) begin(spec *corev1.Container, settings container.Spec) (*container.Container, *logs.Log, error) {
	log := logs.New()
	p.mu.Lock()
	r := p.runs[spec.Name]
	if r == nil {
		r = &runs{spec: spec}
		p.runs[spec.Name] = r
	}
	r.previous, r.log = r.log, log
	p.mu.Unlock()
	out, in, err := os.Pipe()
	if err != nil {
		return nil, log, err
	}
	defer in.Close()
	log.Keep(out)
	net := p.network.Load()
	if net == nil {
		return nil, log, fmt.Errorf("the Pod has no network any more")
	}
	running, err := container.Start(net.space, settings, in, in)
	if err != nil {
		return nil, log, err
	}
	p.mu.Lock()
	r.current = running
	p.mu.Unlock()
	return running, log, nil
}

// watch runs the postStart hook, then the probes, until ctx ends, on goroutines of the group.
func (p *pod) watch(ctx context.Context, spec *corev1.Container, running *container.Container, all *sync.WaitGroup) {
	name, target := spec.Name, p.target(spec, running)
	if spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil {
		if err := target.Hook(ctx, spec.Lifecycle.PostStart); err != nil {
			p.unhealthy(ctx, name, "postStart hook", err, nil)
			return
		}
	}
	p.send(func() { p.machine.Hooked(name) })
	if s := spec.StartupProbe; s != nil {
		up, cancel := context.WithCancel(ctx)
		probe.Run(up, s, func(ctx context.Context) error { return target.Check(ctx, s.ProbeHandler) }, func(err error) {
			if err != nil {
				p.unhealthy(ctx, name, "startup probe", err, s)
			} else {
				p.send(func() { p.machine.Started(name) })
			}
			cancel()
		})
		cancel()
	}
	if r := spec.ReadinessProbe; r != nil {
		all.Go(func() {
			probe.Run(ctx, r, func(ctx context.Context) error { return target.Check(ctx, r.ProbeHandler) }, func(err error) {
				p.send(func() { p.machine.Ready(name, err == nil) })
			})
		})
	}
	if l := spec.LivenessProbe; l != nil {
		probe.Run(ctx, l, func(ctx context.Context) error { return target.Check(ctx, l.ProbeHandler) }, func(err error) {
			if err != nil {
				p.unhealthy(ctx, name, "liveness probe", err, l)
			}
		})
	}
}

func (p *pod) unhealthy(ctx context.Context, name, what string, err error, pr *corev1.Probe) {
	p.node.Log.Info(what+" failed", "pod", p.namespace+"/"+p.name, "container", name, "err", err)
	p.send(func() {
		for _, a := range p.machine.Unhealthy(name, pr) {
			p.act(ctx, a)
		}
	})
}

// stop runs the preStop hook, signals the first process, and kills it after the grace period.
func (p *pod) stop(ctx context.Context, name string, grace time.Duration) {
	p.mu.Lock()
	r := p.runs[name]
	running := r.current
	p.mu.Unlock()
	if running == nil {
		return
	}
	limit := time.After(grace)
	if l := r.spec.Lifecycle; l != nil && l.PreStop != nil && grace > 0 {
		hook, cancel := context.WithTimeout(ctx, grace)
		if err := p.target(r.spec, running).Hook(hook, l.PreStop); err != nil {
			p.node.Log.Info("preStop hook failed", "pod", p.namespace+"/"+p.name, "container", name, "err", err)
		}
		cancel()
	}
	if grace > 0 {
		running.Signal(syscall.SIGTERM)
		select {
		case <-running.Done():
			return
		case <-limit:
		case <-ctx.Done():
		}
	}
	running.Signal(syscall.SIGKILL)
}

// target returns a container in the form that probes and hooks use.
func (p *pod) target(spec *corev1.Container, running *container.Container) probe.Target {
	t := probe.Target{Container: spec, Dial: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = p.node.Network.Do(func() (err error) {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}, Exec: func(ctx context.Context, command []string) error {
		return execute(ctx, running, command)
	}}
	if n := p.network.Load(); n != nil {
		t.IP = n.addresses[0].String()
	}
	return t
}

// settings returns the settings for starting a container.
func (p *pod) settings(spec *corev1.Container) (container.Spec, error) {
	object := p.object.Load()
	img, err := p.node.Images.Find(spec.Image)
	if err != nil {
		return container.Spec{}, unstarted{"ErrImagePull", err}
	}
	s := container.Spec{Programs: img.Programs, Hostname: hostname(object), Dir: spec.WorkingDir}
	if s.Dir == "" {
		s.Dir = img.Dir
	}
	s.UID, s.GID, s.Groups, s.ReadOnlyRoot = user(object, spec, img)
	s.Env, err = podenv.Make(object, spec, *p.status.Load(), base(s, img), p.node.from)
	if err != nil {
		return container.Spec{}, unstarted{"CreateContainerConfigError", err}
	}
	if s.Args, err = img.Args(podenv.ExpandAll(spec.Command, s.Env), podenv.ExpandAll(spec.Args, s.Env)); err != nil {
		return container.Spec{}, unstarted{"CreateContainerError", err}
	}
	if s.Mounts, err = p.mounts(object, spec, s.Env); err != nil {
		return container.Spec{}, unstarted{"CreateContainerConfigError", err}
	}
	s.Root, err = os.MkdirTemp(p.dir, "root-"+spec.Name+"-")
	return s, err
}

// base returns the environment of a container before its own variables.
func base(s container.Spec, img image.Image) map[string]string {
	env := map[string]string{"PATH": container.DefaultPath, "HOSTNAME": s.Hostname, "HOME": "/"}
	if s.UID == 0 {
		env["HOME"] = "/root"
	}
	maps.Copy(env, img.Env)
	return env
}

// user returns the user and groups of a container: by its own security context, else the Pod's, else the image.
func user(object *corev1.Pod, spec *corev1.Container, img image.Image) (uid, gid uint32, groups []uint32, readOnly bool) {
	id := img.User
	var group int64
	if c := object.Spec.SecurityContext; c != nil {
		if c.RunAsUser != nil {
			id = *c.RunAsUser
		}
		if c.RunAsGroup != nil {
			group = *c.RunAsGroup
		}
		for _, g := range c.SupplementalGroups {
			groups = append(groups, uint32(g))
		}
		if c.FSGroup != nil {
			groups = append(groups, uint32(*c.FSGroup))
		}
	}
	if c := spec.SecurityContext; c != nil {
		if c.RunAsUser != nil {
			id = *c.RunAsUser
		}
		if c.RunAsGroup != nil {
			group = *c.RunAsGroup
		}
		readOnly = c.ReadOnlyRootFilesystem != nil && *c.ReadOnlyRootFilesystem
	}
	return uint32(id), uint32(group), groups, readOnly
}

// mounts returns the container's volumes, and the files that every container has.
func (p *pod) mounts(object *corev1.Pod, spec *corev1.Container, env []string) ([]container.Mount, error) {
	mounts, err := p.volumes.Mounts(object, spec, env)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"hosts", "resolv.conf", "hostname"} {
		mounts = append(mounts, container.Mount{Source: filepath.Join(p.dir, name), Target: "/etc/" + name})
	}
	if path := spec.TerminationMessagePath; path != "" {
		file := p.messageFile(spec)
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			return nil, err
		}
		if err := os.Chmod(file, 0o666); err != nil {
			return nil, err
		}
		mounts = append(mounts, container.Mount{Source: file, Target: path})
	}
	return mounts, nil
}

func (p *pod) messageFile(spec *corev1.Container) string {
	return filepath.Join(p.dir, "message-"+spec.Name)
}

// terminationMessage returns the text that a container wrote to its terminationMessagePath.
func (p *pod) terminationMessage(spec *corev1.Container) string {
	text, err := os.ReadFile(p.messageFile(spec))
	if err != nil {
		return "" // the object has no such path
	}
	return strings.ToValidUTF8(string(text[:min(len(text), 4096)]), "?")
}

func newID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return "processes://" + hex.EncodeToString(b)
}
