package scene

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/store/loopback"
)

// prepare writes the world, starts the servers and waits until they have read it.
func (s *stage) prepare() error {
	settings, err := mesh.Load(s.scenario.World)
	if err != nil {
		return err
	}
	settings = settings.Scaled(s.Scale)
	settings.Form = s.Form
	if s.Seed != 0 {
		settings.Seed = s.Seed
	}
	if s.scenario.change != nil {
		s.scenario.change(&settings)
	}
	if s.mesh, err = mesh.New(settings); err != nil {
		return err
	}
	base, err := os.MkdirTemp(s.WorkDir, s.scenario.Name+"-")
	if err != nil {
		return err
	}
	if s.dir = s.ConfigDir; s.dir == "" {
		s.dir = filepath.Join(base, "mesh")
	}
	s.enter("writing the world")
	if err := s.mesh.Write(s.dir); err != nil {
		return err
	}
	s.churn = mesh.NewChurn(s.mesh, s.dir)
	if s.Navarchd == "" {
		return s.take()
	}
	if err := s.plane(base); err != nil {
		return err
	}
	s.starter = &starter{binary: s.Navarchd, dir: base, config: s.dir, etcd: s.Etcd,
		mesh: filepath.Base(base), env: slices.Concat(s.Env, s.scenario.env), flags: s.scenario.flags}
	if err := s.secure(base, settings.MTLS); err != nil {
		return err
	}
	return s.serve()
}

// take measures servers that the user has started.
func (s *stage) take() error {
	s.servers, s.measured = s.Servers, s.Servers
	s.writer = s.Servers[0]
	for _, one := range s.Servers {
		if _, err := gauge.ReadProcess(one.PID); one.PID != 0 && err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	s.result.Replicas, s.result.MTLS = len(s.servers), s.TLS.on()
	return s.await("reading the world", s.settled)
}

// serve starts the servers, and waits until they have read the world.
func (s *stage) serve() (err error) {
	n := max(1, s.Replicas, s.scenario.Replicas)
	s.result.Replicas, s.result.MTLS = n, s.mesh.Settings.MTLS
	if s.cluster != nil {
		s.starter.kubeconfig = s.cluster.Kubeconfig()
	}
	if s.scenario.webhooks {
		if s.starter.webhooks, err = loopback.Address(); err != nil {
			return err
		}
	}
	s.enter("starting the servers")
	started := time.Now()
	s.writer, s.servers, err = s.starter.cluster(n)
	s.mu.Lock()
	s.measured = s.starter.all
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.await("reading the world", s.ready); err != nil || s.cluster == nil {
		return err
	}
	s.row(rowKubeReady, "s", time.Since(started).Seconds())
	return nil
}

func makeDir(dir string) error { return os.MkdirAll(dir, 0o755) }

// secure makes the servers use TLS if the world requires it, with certificates of the harness or of their own CA.
func (s *stage) secure(base string, on bool) error {
	switch {
	case !on:
		return nil
	case s.scenario.authority:
		s.starter.issuer = base
		s.TLS = TLS{Authority: &Authority{Roots: filepath.Join(base, "data", "root-cert.pem"),
			Key: filepath.Join(base, fileIssuer), EachPod: s.scenario.oneAccount}}
		return makeIssuer(base)
	}
	s.starter.ca, s.TLS = base, TLS{Dir: base}
	return makeCA(base)
}

// ready returns nil once all replicas have the whole world, and the CA has written its roots, which proxies need.
func (s *stage) ready() error {
	if ca := s.TLS.Authority; ca != nil {
		if _, err := os.Stat(ca.Roots); err != nil {
			return err
		}
	}
	for _, one := range s.servers {
		if err := errors.Join(one.alive(), one.loaded(s.ctx, s.mesh.Settings.Services)); err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
	}
	return s.writer.alive()
}

// settled works like ready, for servers that the user has started: without a debug page it waits for Options.Settle
// instead.
func (s *stage) settled() error {
	settle := s.Settle
	if settle == 0 {
		settle = 10 * time.Second
	}
	for _, one := range s.servers {
		if err := one.loaded(s.ctx, s.mesh.Settings.Services); err != nil && time.Since(s.began) < settle {
			return err
		}
	}
	return nil
}

// await polls until `is` returns nil. The error contains the last one of `is`.
func (s *stage) await(what string, is func() error) error {
	s.enter(what)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := is()
		if err == nil {
			return nil
		}
		for _, one := range s.watched() {
			if dead := one.alive(); dead != nil {
				return dead
			}
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return fmt.Errorf("%s: %w (%w)", what, err, s.ctx.Err())
		}
	}
}
