// Command navarch-agent runs one Envoy. It renders the bootstrap from the environment that Istio's sidecar injection
// sets, restarts Envoy after a crash, and drains Envoy at the end. It relays Envoy's ADS streams to the control plane,
// and answers readiness probes.
//
// Owns: the Envoy process, its bootstrap file and its sockets for XDS and SDS. Reads: the environment, the downward
// API. Never: interprets the configuration that it relays.
//
// The agent itself listens on 15021, and can therefore answer health requests there before Envoy is up. In Istio, a
// listener of Envoy on 15021 forwards these requests to 15020.
//
// Most of the agent's memory is the code pages of its program. To keep the program small, the bootstrap is written as
// JSON, and `make build` leaves out html/template and its imports.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/cmd/internal/wire"
)

const (
	defaultDiscovery = "istiod.istio-system.svc:15012"
	defaultConfig    = "./etc/istio/proxy"
	defaultMetrics   = "0.0.0.0:15090"
	defaultDrain     = 45 * time.Second
)

// options are the flags of navarch-agent. The method complete fills in values from the environment and the proxy's
// configuration.
type options struct {
	nodeType, domain         string
	podInfo                  string
	discovery, rootCert, san string
	plaintext                bool
	tokenFile                string
	caAddress, outputCerts   string
	certTTL                  time.Duration // 0: the lifetime that the CA grants
	renewAt                  float64       // fraction of a certificate's lifetime after which it is renewed; 0: half
	configPath, envoyPath    string
	socketGroup              string // empty: only Envoy's user may use the XDS socket
	adminAddr                string
	statusAddr, debugAddr    string
	statsAddr, metricsAddr   string
	meshConfig               string
	envFiles                 []string
	concurrency              int
	drain                    time.Duration
	bye                      shutdown
	logLevel, logFormat      string
	envoyLogLevel            string
	envoyComponentLog        string
	dnsAddr, resolvConf      string
	printBootstrap           bool
	bootstrapPatches         bool
	bootstrapWait            time.Duration // the longest wait for patches of the bootstrap
}

func main() { wire.Main(command()) }

func command() *cobra.Command {
	o := &options{}
	run := func(cmd *cobra.Command, _ []string) error { return o.run(cmd) }
	root := &cobra.Command{Use: "navarch-agent", Short: "Runs Envoy and carries its configuration", Args: cobra.NoArgs, RunE: run}
	sub := &cobra.Command{Use: "run", Short: "The same as no subcommand", Args: cobra.NoArgs, RunE: run}
	root.AddCommand(sub, waitCommand(o), drainCommand(), redirectCommand())
	o.bind(root.PersistentFlags())
	return root
}

// bind defines all flags. It calls bindRun for the flags of addresses, Envoy's process and logs.
func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.nodeType, "type", "sidecar", "Type of the proxy: sidecar or router.")
	f.StringVar(&o.domain, "domain", "",
		"DNS domain of the proxy: namespace, svc, and the domain of the cluster's Services (default that of cluster.local).")
	f.StringVar(&o.podInfo, "pod-info", "/etc/istio/pod", "Folder of the downward API: labels, annotations.")
	f.StringVar(&o.meshConfig, "mesh-config", "./etc/istio/config/mesh",
		"File with the mesh configuration, whose defaultConfig PROXY_CONFIG overrides; may be absent.")
	f.StringArrayVar(&o.envFiles, "env-file", nil,
		"File with rows KEY=value for variables that the environment lacks, such as Istio's cluster.env; may be repeated "+
			"(default: such files in /var/lib/istio/envoy, if there are any).")
	f.StringVar(&o.discovery, "discovery-address", "",
		"Control plane, host:port (default PROXY_CONFIG's discoveryAddress, else "+defaultDiscovery+").")
	f.BoolVar(&o.plaintext, "xds-plaintext", false,
		"No TLS to the control plane; implied by port 15010 and by PROXY_CONFIG's controlPlaneAuthPolicy NONE.")
	f.StringVar(&o.rootCert, "xds-root-cert", "/var/run/secrets/istio/root-cert.pem",
		"Roots that the control plane's certificate must chain to (XDS_ROOT_CA).")
	f.StringVar(&o.san, "xds-server-name", "", "Name in the control plane's certificate, if not the host of its address (ISTIOD_SAN).")
	f.StringVar(&o.tokenFile, "token-file", "/var/run/secrets/tokens/istio-token", "Bearer token, sent over TLS only; may be absent.")
	f.StringVar(&o.caAddress, "ca-address", "", "The CA, host:port (CA_ADDR; default the control plane).")
	f.StringVar(&o.outputCerts, "output-certs", "",
		"Folder, on tmpfs as a rule, where certificate and key are written too (OUTPUT_CERTS); empty: nowhere.")
	f.StringVar(&o.configPath, "config-path", "",
		"Folder of the bootstrap, and of the folder of the XDS and SDS sockets (default PROXY_CONFIG's configPath, else "+defaultConfig+").")
	f.StringVar(&o.socketGroup, "xds-socket-group", "",
		"Group, by name or number, whose members may use the XDS socket beside the user that Envoy runs as, for example a "+
			"proxyless gRPC application of the Pod; the agent must be a member (NAVARCH_XDS_SOCKET_GROUP; default none). The "+
			"SDS socket, which gives out the private key, is for that user alone.")
	f.StringVar(&o.envoyPath, "envoy-path", "", "The Envoy program (ENVOY_PATH; default PROXY_CONFIG's binaryPath, else envoy).")
	o.bindRun(f)
}

// bindRun defines the flags for addresses, for Envoy's process and for logs.
func (o *options) bindRun(f *pflag.FlagSet) {
	f.StringVar(&o.adminAddr, "admin-address", "",
		"Where Envoy's admin listens, IP:port (default 127.0.0.1 and PROXY_CONFIG's proxyAdminPort, else 15000).")
	f.StringVar(&o.statusAddr, "status-addr", ":15021", "Where /healthz/ready is answered; empty: nowhere.")
	f.StringVar(&o.statsAddr, "stats-addr", ":15020",
		"Where merged metrics, probes of the application, /healthz/ready and /quitquitquit are answered (port by "+
			"PROXY_CONFIG's statusPort); empty: nowhere.")
	f.StringVar(&o.metricsAddr, "envoy-metrics-addr", defaultMetrics,
		"Address at which Envoy serves its metrics, IP:port (default on [::] if the Pod's first address is IPv6); "+
			"empty: not served.")
	f.StringVar(&o.debugAddr, "debug-addr", "127.0.0.1:15004", "Where /debug is answered; empty: nowhere.")
	f.StringVar(&o.dnsAddr, "dns-addr", "localhost:15053",
		"Where DNS of the Pod is answered, host:port (DNS_PROXY_ADDR), if ISTIO_META_DNS_CAPTURE is true; localhost means 127.0.0.1 and ::1.")
	f.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf",
		"File with the DNS servers for names outside of the mesh, and with the search domains.")
	f.IntVar(&o.concurrency, "concurrency", 0, "Envoy's worker threads (default PROXY_CONFIG's concurrency; 0: one per CPU).")
	f.DurationVar(&o.drain, "drain-duration", 0,
		"How long a changed listener serves its old connections (default PROXY_CONFIG's drainDuration, else 45s).")
	f.DurationVar(&o.bye.wait, "termination-drain-duration", 0,
		"How long Envoy drains after SIGTERM (TERMINATION_DRAIN_DURATION_SECONDS; default PROXY_CONFIG's terminationDrainDuration, "+
			"else 5s, of a router at most 25s).")
	f.StringVar(&o.logLevel, "log-level", "info",
		"Minimum level of log lines: debug, info, warn, error, none. Istio's form scope:level is accepted too, but only the "+
			"scope default has an effect (default:info,ads:debug).")
	f.StringVar(&o.logFormat, "log-format", "text", "Form of log lines: text, json.")
	f.StringVar(&o.envoyLogLevel, "envoy-log-level", "warning",
		"Minimum level of Envoy's log lines: trace, debug, info, warning, error, critical, off.")
	f.StringVar(&o.envoyComponentLog, "envoy-component-log-level", "misc:error",
		"Levels of single components of Envoy; the default hides its warnings of deprecated fields.")
	f.BoolVar(&o.bootstrapPatches, "bootstrap-patches", false,
		"Request the patches of EnvoyFilters with applyTo BOOTSTRAP from the control plane before Envoy's first start "+
			"(BOOTSTRAP_XDS_AGENT).")
	f.DurationVar(&o.bootstrapWait, "bootstrap-wait", 10*time.Second,
		"Time limit for the patches of --bootstrap-patches: after it, Envoy starts without them.")
	f.BoolVar(&o.printBootstrap, "print-bootstrap", false, "Print Envoy's bootstrap and end.")
}

// fromEnv maps flags to environment variables. A variable sets its flag if the command line does not set the flag.
var fromEnv = map[string]string{
	"xds-root-cert":    "XDS_ROOT_CA",
	"xds-server-name":  "ISTIOD_SAN",
	"xds-socket-group": "NAVARCH_XDS_SOCKET_GROUP",
	"envoy-path":       "ENVOY_PATH",
	"ca-address":       "CA_ADDR",
	"output-certs":     "OUTPUT_CERTS",
	"dns-addr":         dnsProxyAddr,

	"bootstrap-patches": "BOOTSTRAP_XDS_AGENT",
}

// run derives the identity, completes the options, and runs the agent or prints the bootstrap.
func (o *options) run(cmd *cobra.Command) error {
	env, err := environment(o.envFiles, os.Environ())
	if err != nil {
		return err
	}
	id, err := identify(o.nodeType, sources{podInfo: o.podInfo, mesh: o.meshConfig, domain: o.domain}, env)
	if err != nil {
		return err
	}
	if err := wire.FromEnv(cmd.Flags(), id.lookup, fromEnv); err != nil {
		return err
	}
	log, err := wire.Logger(cmd.ErrOrStderr(), o.logLevel, o.logFormat)
	if err != nil {
		return err
	}
	if err := o.complete(id, cmd.Flags().Changed); err != nil {
		return err
	}
	if o.printBootstrap {
		js, err := bootstrap(id, o.bootstrapAddresses())
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), string(js))
		return nil
	}
	a, err := newAgent(o, id, log)
	if err != nil {
		return err
	}
	return a.Run(cmd.Context())
}

// bootstrapAddresses returns the addresses and sockets that the bootstrap contains.
func (o *options) bootstrapAddresses() bootstrapAddresses {
	return bootstrapAddresses{admin: o.adminAddr, metrics: o.metricsAddr, xds: o.socket(), sds: o.sdsSocket(), idle: o.idlePressure()}
}

// complete sets the options that the command line does not set. Their values come from variables, the proxy's
// configuration or defaults. The parameter given reports whether a flag was on the command line. complete returns an
// error if a variable or address is not valid, or if a number is negative.
func (o *options) complete(id *identity, given func(flag string) bool) error {
	p := id.proxy
	o.discovery = cmp.Or(o.discovery, p.GetDiscoveryAddress(), defaultDiscovery)
	o.configPath = cmp.Or(o.configPath, p.GetConfigPath(), defaultConfig)
	o.envoyPath = cmp.Or(o.envoyPath, p.GetBinaryPath(), "envoy")
	adminPort := p.GetProxyAdminPort()
	if adminPort == 0 {
		adminPort = 15000
	}
	o.adminAddr = cmp.Or(o.adminAddr, fmt.Sprintf("127.0.0.1:%d", adminPort))
	if o.concurrency == 0 {
		o.concurrency = int(p.GetConcurrency().GetValue())
	}
	if o.drain == 0 {
		o.drain = firstDuration(p.GetDrainDuration().AsDuration(), defaultDrain)
	}
	if err := o.bye.complete(id); err != nil {
		return err
	}
	if port := p.GetStatusPort(); port != 0 && !given("stats-addr") {
		o.statsAddr = fmt.Sprintf(":%d", port)
	}
	if len(id.addresses) > 0 && strings.Contains(id.addresses[0], ":") && o.metricsAddr == defaultMetrics {
		o.metricsAddr = "[::]:15090"
	}
	if err := o.applyStockVariables(id, given); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(o.discovery)
	if err != nil {
		return fmt.Errorf("discovery address %q: want host:port", o.discovery)
	}
	if port == plaintextPort || p.GetControlPlaneAuthPolicy() == meshv1alpha1.AuthenticationPolicy_NONE {
		o.plaintext = true
	}
	if o.concurrency < 0 || o.drain < 0 || o.bootstrapWait < 0 {
		return errors.New("concurrency and durations cannot be negative")
	}
	return nil
}

// firstDuration returns the first positive duration, or 0 if none is positive.
func firstDuration(values ...time.Duration) time.Duration {
	for _, v := range values {
		if v > 0 {
			return v
		}
	}
	return 0
}
