package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/normal"
)

// isolated has the flags that isolate tenants from each other.
type isolated struct {
	ranges, given []string
	settings      normal.Isolation // complete after the method read
}

func (i *isolated) bind(f *pflag.FlagSet) {
	f.BoolVar(&i.settings.On, "tenant-isolation", false,
		"Refuse and leave out exports that name hosts or addresses of other tenants, short names, or no address for a port of "+
			"TCP; without this flag such exports cause warnings.")
	f.StringSliceVar(&i.given, "tenant-hosts", nil,
		"Hosts and wildcards that one tenant alone may export, HOST=TENANT; a tenant is a namespace, or "+isolation.TenantLabel+"=VALUE.")
	f.StringSliceVar(&i.ranges, "cluster-ranges", nil,
		"Ranges (CIDR) of the clusters' Services and Pods: their addresses may be stated by no tenant, but those of its own Services.")
}

// read parses ranges and given into settings. Errors name flags.
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
