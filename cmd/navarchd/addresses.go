package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/cmd/internal/etcdflags"
	"navarch.io/navarch/cmd/internal/preauth"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// addresses are the gRPC addresses: plain text for xDS alone, and the secure one for all roles that speak gRPC.
func (p *process) addresses() ([]loop.Task, error) {
	var tasks []loop.Task
	if p.config.grpcAddr != "" && p.server != nil {
		task, err := p.listen("xds, plain text", p.config.grpcAddr, nil, func(r grpc.ServiceRegistrar) {
			p.server.Register(r)
			if p.config.has(roleCA) {
				caserve.RegisterPlain(r, current{p.ca.ring})
			}
		})
		if err != nil {
			return nil, fmt.Errorf("--grpc-addr: %w", err)
		}
		tasks = append(tasks, task)
	}
	var services []func(grpc.ServiceRegistrar)
	if p.server != nil {
		services = append(services, p.server.Register)
	}
	if p.config.has(roleCA) {
		services = append(services, p.ca.server.Register)
	}
	if len(services) == 0 || p.config.secureGRPCAddr == "" {
		return tasks, nil
	}
	conf, err := p.secureTLS()
	if conf == nil || err != nil {
		return tasks, err
	}
	if p.server != nil && !p.callers.Required() {
		p.log.Warn("the secure address serves configuration to callers without a credential (XDS_AUTH=false)")
	}
	task, err := p.listen("xds and ca, TLS", p.config.secureGRPCAddr, conf, func(r grpc.ServiceRegistrar) {
		for _, register := range services {
			register(r)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("--secure-grpc-addr: %w", err)
	}
	return append(tasks, task), nil
}

// secureTLS is the secure address's: by our own CA, or by the operator's files; nil where there is neither.
func (p *process) secureTLS() (*tls.Config, error) {
	switch {
	case p.ca != nil:
		return p.ca.serving.Config(p.ca.ring.State), nil
	case p.config.tlsCert == "":
		p.log.Info("secure xDS is off: it needs role ca, or --tls-cert and --tls-key")
		return nil, nil
	}
	var clients *x509.CertPool
	if p.config.clientCA != "" {
		var err error
		if clients, err = etcdflags.Certificates("--tls-client-ca", p.config.clientCA); err != nil {
			return nil, err
		}
	}
	return serving.ByFiles(p.config.tlsCert, p.config.tlsKey, clients)
}

// goAway is the time between telling clients to go and hanging up.
const goAway = 200 * time.Millisecond

// listen binds a gRPC address now, and serves it once its task runs; conf nil: in plain text.
func (p *process) listen(name, address string, conf *tls.Config, register func(grpc.ServiceRegistrar)) (loop.Task, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return loop.Task{}, err
	}
	limiter := preauth.New(preauth.Limits{Shared: p.config.shared}, obs.NewSampled(p.log))
	options := append(serve.Options(), limiter.Options()...)
	options = append(options, grpc.MaxRecvMsgSize(p.config.env.maxRecvSize), grpc.UnaryInterceptor(p.crashes.Unary),
		grpc.StreamInterceptor(p.crashes.Stream))
	label := "plain"
	if conf != nil {
		label = "secure"
		options = append(options, grpc.Creds(limiter.Credentials(serving.ByRecords(credentials.NewTLS(conf)), p.callers.Admits)))
	}
	p.limiters = append(p.limiters, listenerLimits{label, limiter})
	server := grpc.NewServer(options...)
	register(server)
	p.registerCommon(server)
	p.log.Info("listening", obs.KeyListener, name, obs.KeyAddress, l.Addr().String())
	return loop.Task{Name: name, Run: func(ctx context.Context) error {
		// Streams do not end by themselves: a graceful stop would wait for ever. Proxies reconnect, and are sent nothing. The
		// moment is for GOAWAY to be written, and for what is being answered.
		defer context.AfterFunc(ctx, func() {
			hard := time.AfterFunc(goAway, server.Stop)
			server.GracefulStop()
			hard.Stop()
		})()
		return server.Serve(serve.Listen(limiter.Listen(l)))
	}}, nil
}

// listenerLimits are the limits of one gRPC address, and its label in metrics.
type listenerLimits struct {
	label string
	*preauth.Limiter
}
