package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	resolver "github.com/miekg/dns"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/wire"
	"navarch.io/navarch/deploy/redirect"
	"navarch.io/navarch/deploy/redirect/kernel"
)

// redirectOptions are the flags of `navarch-agent redirect`. Their names, short forms and environment variables are
// those of `pilot-agent istio-iptables`.
type redirectOptions struct {
	text                             redirect.Text
	dns, dnsAll, dropInvalid         bool
	resolvConf                       string
	dryRun, clean, verify, skipApply bool
	validate                         bool // verify after the rules are applied
}

// withoutEffect lists flags of istio-iptables that are accepted but have no effect, so that injection templates work
// unchanged. The method run prints a message for each of these flags that is set.
var withoutEffect = []withoutEffectFlag{
	{"restore-format", "f", true, "a dry run prints the input of nft"},
	{"iptables-trace-logging", "", true, "rules are not logged: nft monitor trace shows packets"},
	{"probe-timeout", "", false, "verification waits as long as it needs"},
	{"iptables-probe-port", "", false, "verification has a port of its own"},
	{"dual-stack", "", true, "both address families are always redirected"},
	{"cni-mode", "", true, "the CNI plugin is a program of its own"},
	{"host-nsenter-exec", "", true, "the CNI plugin is a program of its own"},
	{"network-namespace", "", false, "rules are for the namespace of this process"},
	{"force-apply", "", true, "rules are always replaced as a whole"},
	{"reconcile", "", true, "rules are always replaced as a whole"},
	{"iptables-version", "", false, "no program is run"},
	{"native-nftables", "", true, "rules are always nftables'"},
	{"log_output_level", "", false, "what is done is printed"},
}

// withoutEffectFlag is one flag without effect.
type withoutEffectFlag struct {
	name, short string
	alone       bool   // the flag needs no value
	why         string // reason, which is printed
}

func redirectCommand() *cobra.Command {
	o := &redirectOptions{}
	cmd := &cobra.Command{
		Use: "redirect", Aliases: []string{"istio-iptables"}, Args: cobra.NoArgs,
		Short: "Has the kernel hand the Pod's traffic to Envoy, and its DNS to the agent",
		Long: `Replaces the rules by which the kernel hands the traffic of this network namespace to Envoy, in one transaction; an
init container runs it, with the capability NET_ADMIN. Flags and environment are those of istio-iptables. Only --clean
removes the rules. While Envoy is away, the application's traffic is refused and never sent in clear.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.text.OutboundPort, "envoy-port", "p", "", "Port to which outbound TCP goes (default 15001).")
	f.StringVarP(&o.text.InboundPort, "inbound-capture-port", "z", "", "Port to which inbound TCP goes (default 15006).")
	f.StringVarP(&o.text.TunnelPort, "inbound-tunnel-port", "e", "", "Port of HBONE, which is not redirected (default 15008).")
	f.StringVarP(&o.text.ProxyUIDs, "proxy-uid", "u", "", "Users whose traffic is not redirected (default that of ENVOY_USER, else 1337).")
	f.StringVarP(&o.text.ProxyGIDs, "proxy-gid", "g", "", "Groups whose traffic is not redirected (default as --proxy-uid).")
	f.StringVarP(&o.text.Mode, "istio-inbound-interception-mode", "m", "",
		"How inbound connections reach Envoy: REDIRECT or TPROXY (default REDIRECT).")
	f.StringVarP(&o.text.Mark, "istio-inbound-tproxy-mark", "t", "", "Mark of packets for a transparent socket (default 1337).")
	f.StringVarP(&o.text.RouteTable, "istio-inbound-tproxy-route-table", "r", "",
		"Route table that delivers packets with this mark (default 133).")
	f.StringVarP(&o.text.Inbound, "istio-inbound-ports", "b", "", "Inbound ports to redirect; * is all, empty none.")
	f.StringVarP(&o.text.InboundExclude, "istio-local-exclude-ports", "d", "", "Inbound ports not to redirect, if all others are.")
	f.StringVarP(&o.text.Outbound, "istio-service-cidr", "i", "", "Destinations (CIDR) to redirect; * is all, empty none.")
	f.StringVarP(&o.text.OutboundExclude, "istio-service-exclude-cidr", "x", "", "Destinations (CIDR) not to redirect.")
	f.StringVarP(&o.text.OutboundPorts, "istio-outbound-ports", "q", "",
		"Outbound ports to redirect for all destinations that are not excluded.")
	f.StringVarP(&o.text.OutboundExcludePorts, "istio-local-outbound-ports-exclude", "o", "", "Outbound ports not to redirect.")
	f.StringVarP(&o.text.ExcludeInterfaces, "istio-exclude-interfaces", "c", "", "Interfaces whose traffic is not redirected.")
	f.StringVarP(&o.text.VirtualInterfaces, "kube-virt-interfaces", "k", "",
		"Interfaces of virtual machines: what comes in there is outbound traffic.")
	f.StringVar(&o.text.OwnerGroups, "istio-outbound-owner-groups", "",
		"Groups whose outbound traffic alone is redirected; * or empty: all.")
	f.StringVar(&o.text.OwnerGroupsExclude, "istio-outbound-owner-groups-exclude", "",
		"Groups whose outbound traffic is not redirected.")
	f.BoolVar(&o.dns, "redirect-dns", false, "Hand DNS for the servers of resolv.conf to the agent (ISTIO_META_DNS_CAPTURE).")
	f.BoolVar(&o.dnsAll, "capture-all-dns", false, "With --redirect-dns: DNS for any server.")
	f.BoolVar(&o.dropInvalid, "drop-invalid", false, "Drop packets that belong to no connection (INVALID_DROP).")
	f.StringVar(&o.resolvConf, "dns-servers-from", "/etc/resolv.conf", "The file that names the DNS servers.")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "Print the rules as the input of nft, and change nothing.")
	f.BoolVar(&o.clean, "clean", false, "Remove the rules, and nothing else.")
	f.BoolVar(&o.verify, "verify", false, "Change nothing; fail with status 126 where traffic is not redirected. It needs no capability.")
	f.BoolVar(&o.validate, "run-validation", false, "Verify as --verify does, but after the rules were made, unless --skip-rule-apply.")
	f.BoolVar(&o.skipApply, "skip-rule-apply", false, "Make no rules.")
	f.BoolVar(&o.clean, "cleanup-only", false, "As --clean.")
	for _, flag := range withoutEffect {
		f.StringP(flag.name, flag.short, "", "No effect: "+flag.why+".")
		if flag.alone {
			f.Lookup(flag.name).NoOptDefVal = "true"
		}
	}
	return cmd
}

// redirectEnv maps flags to the environment variables of istio-iptables. The variable is the flag's name in upper case
// with "_" for "-", except for redirect-dns and drop-invalid. Flags without effect, and the flags in the local variable
// ours, have no environment variable.
func redirectEnv(flags *pflag.FlagSet) map[string]string {
	out := map[string]string{"redirect-dns": metaPrefix + "DNS_CAPTURE", "drop-invalid": "INVALID_DROP"}
	flags.VisitAll(func(f *pflag.Flag) {
		silent := slices.ContainsFunc(withoutEffect, func(w withoutEffectFlag) bool { return w.name == f.Name })
		ours := []string{"verify", "clean", "dns-servers-from", "dry-run", "help"}
		if _, other := out[f.Name]; !other && !silent && !slices.Contains(ours, f.Name) {
			out[f.Name] = strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	return out
}

// run prints, removes, applies or verifies the rules, as the flags request. If the verification fails, the error has
// the type notRedirected.
func (o *redirectOptions) run(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	if err := wire.FromEnv(cmd.Flags(), os.Getenv, redirectEnv(cmd.LocalNonPersistentFlags())); err != nil {
		return err
	}
	for _, flag := range withoutEffect {
		if cmd.Flags().Changed(flag.name) {
			fmt.Fprintf(cmd.ErrOrStderr(), "--%s has no effect: %s\n", flag.name, flag.why)
		}
	}
	c, err := o.config()
	if err != nil {
		return err
	}
	switch {
	case o.dryRun:
		fmt.Fprint(out, c.Rules())
		return nil
	case o.clean:
		return kernel.Clean(c)
	case !o.verify && !o.skipApply:
		if err := kernel.Apply(c.Rules()); err != nil {
			return err
		}
		fmt.Fprintf(out, "traffic is redirected: outbound to %d, inbound to %d\n", c.OutboundPort, c.InboundPort)
	}
	if !o.verify && !o.validate {
		return nil
	}
	if err := kernel.Verify(c, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		return notRedirected{err}
	}
	fmt.Fprintln(out, "redirection was verified")
	return nil
}

// notRedirected is the error of a failed verification. Its exit code keeps the Pod from starting.
type notRedirected struct{ error }

// ExitCode returns 126, like a failed validation of istio-iptables. wire.Main ends the process with this code.
func (notRedirected) ExitCode() int { return 126 }

// Unwrap returns the error of the verification.
func (n notRedirected) Unwrap() error { return n.error }

// config returns the redirection that flags and environment describe. The error names the invalid setting, or the
// resolv.conf file without usable servers.
func (o *redirectOptions) config() (redirect.Config, error) {
	if o.text.ProxyUIDs == "" {
		o.text.ProxyUIDs = strconv.Itoa(redirect.DefaultProxyUID)
		if name := os.Getenv("ENVOY_USER"); name != "" {
			if u, err := user.Lookup(name); err == nil {
				o.text.ProxyUIDs = u.Uid
			}
		}
	}
	c, err := o.text.Config()
	if err != nil {
		return c, err
	}
	c.DropInvalid = o.dropInvalid
	if o.dns {
		if c.DNSAll = o.dnsAll; !c.DNSAll {
			if c.DNSServers, err = dnsServers(o.resolvConf); err != nil {
				return c, err
			}
		}
	}
	return c, c.Validate()
}

// dnsServers returns the addresses of the servers in a resolv.conf, without zones or duplicates. It returns an error if
// the file cannot be read or names no server, or if an entry is not an IP address.
func dnsServers(path string) (out []netip.Addr, err error) {
	conf, err := resolver.ClientConfigFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("DNS servers of the Pod: %w", err)
	}
	for _, text := range conf.Servers {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("DNS servers of the Pod: %s: %w", path, err)
		}
		if a = a.WithZone(""); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("DNS servers of the Pod: " + path + " has no nameserver, and the capture of DNS needs one")
	}
	return out, nil
}
