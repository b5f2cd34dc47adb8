package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/normal"
)

// isolated has the flags that isolate tenants from each other.
type isolated struct {
	ranges, given []string         // values of --cluster-ranges and --tenant-hosts
	settings      normal.Isolation // complete after the method read
}

func (i *isolated) bind(f *pflag.FlagSet) {
	f.BoolVar(&i.settings.On, "tenant-isolation", false,
		"Refuse and leave out exports that name hosts or addresses of other tenants, short names, or no address for a port of "+
			"TCP; without this flag such exports cause warnings.")
	f.StringSliceVar(&i.given, "tenant-hosts", nil,
		"Hosts and wildcards that one tenant alone may export, HOST=TENANT; a tenant is a namespace, or "+isolation.TenantLabel+"=VALUE.")
	f.StringSliceVar(&i.ranges, "cluster-ranges", nil,
		"Ranges (CIDR) of the clusters' Services, Pods and nodes: their addresses may be stated by no tenant, but those of its own"+
			" Services, and key sets are not fetched from them without --jwks-cluster.")
}

// orInRanges returns a function that reports whether an address belongs to --cluster-ranges, or whether the function
// known returns true for the address. The address must not be an IPv4-mapped IPv6 address.
func (i *isolated) orInRanges(known func(netip.Addr) bool) func(netip.Addr) bool {
	ranges := i.settings.Ranges
	return func(a netip.Addr) bool {
		return known(a) || slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
	}
}

// read parses the fields ranges and given into the field settings. Errors name flags.
func (i *isolated) read() (err error) {
	if i.settings.Ranges, err = prefixes(i.ranges); err != nil {
		return fmt.Errorf("--cluster-ranges: %w", err)
	}
	i.settings.Given = map[string]string{}
	for _, one := range i.given {
		host, tenant, ok := strings.Cut(strings.TrimSpace(one), "=")
		host = strings.TrimSuffix(strings.ToLower(host), ".")
		switch {
		case !ok || host == "" || tenant == "":
			return fmt.Errorf("--tenant-hosts: %q; want HOST=TENANT", one)
		case i.settings.Given[host] != "":
			return fmt.Errorf("--tenant-hosts: %s is listed twice", host)
		}
		i.settings.Given[host] = tenant
	}
	return nil
}
