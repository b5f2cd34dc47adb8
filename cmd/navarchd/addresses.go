package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/ca/issue"
	caserve "navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/cmd/internal/etcdflags"
	"navarch.io/navarch/cmd/internal/preauth"
	"navarch.io/navarch/cmd/navarchd/callers"
	"navarch.io/navarch/cmd/navarchd/health"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// addresses are the gRPC addresses of a process. The plain-text address serves xDS, and answers certificate requests
// with an error. The secure address (TLS) serves all gRPC services of the process.
type addresses struct {
	config   *config
	log      *slog.Logger
	crashes  *crash.Log
	callers  *callers.Callers
	health   *health.Health
	limiters []listenerLimits
}

// open binds the addresses, and returns the tasks that serve them. The argument roles has the gRPC services. The
// function secure returns the TLS configuration of the secure address. If secure returns nil, the secure address is
// off. Errors: an address cannot be bound (the error names the flag), or the error of secure.
func (p *addresses) open(roles part, secure func() (*tls.Config, error)) ([]loop.Task, error) {
	var tasks []loop.Task
	serves := p.config.has(roleXDS)
	if p.config.grpcAddr != "" && serves {
		task, err := p.listen("xds, plain text", p.config.grpcAddr, nil, all(roles.plain))
		if err != nil {
			return nil, fmt.Errorf("--grpc-addr: %w", err)
		}
		tasks = append(tasks, task)
	}
	if len(roles.secure) == 0 || p.config.secureGRPCAddr == "" {
		return tasks, nil
	}
	conf, err := secure()
	if conf == nil || err != nil {
		return tasks, err
	}
	if serves && !p.callers.Required() {
		p.log.Warn("the secure address serves configuration to callers without a credential (XDS_AUTH=false)")
	}
	task, err := p.listen("xds and ca, TLS", p.config.secureGRPCAddr, conf, all(roles.secure))
	if err != nil {
		return nil, fmt.Errorf("--secure-grpc-addr: %w", err)
	}
	return append(tasks, task), nil
}

// all returns a function that calls all functions in services.
func all(services []func(grpc.ServiceRegistrar)) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		for _, register := range services {
			register(r)
		}
	}
}

// tlsOfFiles returns the TLS configuration with the certificate of --tls-cert, or nil without this flag. The error
// reports a file that cannot be read or used.
func (c *config) tlsOfFiles(log *slog.Logger) (*tls.Config, error) {
	if c.tlsCert == "" {
		log.Info("secure xDS is off: it needs role ca, or --tls-cert and --tls-key")
		return nil, nil
	}
	var clients *x509.CertPool
	if c.clientCA != "" {
		var err error
		if clients, err = etcdflags.Certificates("--tls-client-ca", c.clientCA); err != nil {
			return nil, err
		}
	}
	return serving.ByFiles(c.tlsCert, c.tlsKey, clients)
}

// goAway is the maximum time between GOAWAY and the end of the connections.
const goAway = 200 * time.Millisecond

// listen binds a gRPC address, and returns the task that serves it. If conf is nil, the task serves plain text. The
// error reports that the address cannot be bound.
func (p *addresses) listen(name, address string, conf *tls.Config, register func(grpc.ServiceRegistrar)) (loop.Task, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return loop.Task{}, err
	}
	limiter := preauth.New(preauth.Limits{Shared: p.config.shared, Message: messageLimit}, obs.NewSampled(p.log))
	options := append(serve.Options(), limiter.Options()...)
	options = append(options, grpc.MaxRecvMsgSize(p.config.env.maxRecvSize), grpc.UnaryInterceptor(p.crashes.Unary),
		grpc.StreamInterceptor(p.crashes.Stream))
	label, creds := "plain", insecure.NewCredentials()
	if conf != nil {
		label, creds = "secure", serving.Credentials(conf)
	}
	options = append(options, grpc.Creds(limiter.Credentials(creds, p.callers.Admits)))
	p.limiters = append(p.limiters, listenerLimits{label, limiter})
	server := grpc.NewServer(options...)
	register(server)
	p.health.Register(server, p.callers.Authenticate)
	p.log.Info("listening", obs.KeyListener, name, obs.KeyAddress, l.Addr().String())
	return loop.Task{Name: name, Run: func(ctx context.Context) error {
		// A graceful stop alone would wait for ever, because streams do not end by themselves. Proxies reconnect
		// without loss. The delay is for GOAWAY, and for responses that are being sent.
		defer context.AfterFunc(ctx, func() {
			hard := time.AfterFunc(goAway, server.Stop)
			server.GracefulStop()
			hard.Stop()
		})()
		return server.Serve(serve.Listen(limiter.Listen(l)))
	}}, nil
}

// messageLimit returns the largest message of a method in bytes (preauth.Limits.Message). For configuration streams it
// returns 0, because only ISTIO_GPRC_MAXRECVMSGSIZE limits their messages. A certificate request may have 1 KiB more
// than the largest CSR. Other messages may have 32 KiB. The largest of these messages list fingerprints of roots
// (caserve.HoldersMethod).
func messageLimit(method string) int {
	switch {
	case strings.HasPrefix(method, "/envoy.service."):
		return 0
	case method == caserve.CertificateMethod:
		return issue.MaxCSR + 1<<10
	}
	return 32 << 10
}

// listenerLimits are the limits of one gRPC address, with its label in metrics.
type listenerLimits struct {
	label string
	*preauth.Limiter
}

// gauges sets the metrics of connections without a credential.
func (p *addresses) gauges(time.Time) {
	for _, l := range p.limiters {
		obs.Unauthenticated.WithLabelValues(l.label).Set(float64(l.Open()))
		obs.UnauthenticatedWaiting.WithLabelValues(l.label).Set(float64(l.Waiting()))
	}
}
