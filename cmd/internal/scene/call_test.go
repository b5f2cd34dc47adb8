package scene

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// walkable returns a proxy's resources for a walk. Listeners are sorted by name.
func walkable(p *proxy) *walk.Messages {
	out := &walk.Messages{}
	for _, t := range []xds.Type{xds.Listener, xds.Route, xds.Cluster, xds.Endpoint} {
		all := holds[proto.Message](p, t)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out.Add(all[name])
		}
	}
	return out
}

// follow prints a walk, a line for each step.
func follow(a *actor, direction walk.Direction, r walk.Request) string {
	var out strings.Builder
	for _, step := range walk.Walk(walkable(a.proxy), direction, r).Steps {
		fmt.Fprintln(&out, step.Text)
	}
	return short(out.String())
}

func (s *stage) call(args []string) (string, error) {
	a, r, err := s.request(args)
	if err != nil {
		return "", err
	}
	if r.Address == "" {
		r.Address = s.resolve(r.Name, a.view.Namespace)
	}
	return follow(a, walk.Outbound, r), nil
}

func (s *stage) receive(args []string) (string, error) {
	a, r, err := s.request(args)
	if err != nil {
		return "", err
	}
	r.Address = cmp.Or(r.Address, a.view.Addresses[0])
	return follow(a, walk.Inbound, r), nil
}

// talk regenerates the answers in a transcript; comments and blank lines are unchanged.
func (s *stage) talk(args []string) (string, error) {
	if len(args) != 2 {
		return "", errors.New("want PROXY FILE")
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, args[1]))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		question, asks := strings.CutPrefix(line, "> ")
		if asks || strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			out.WriteString(line)
		}
		if !asks {
			continue
		}
		words := append([]string{"", args[0]}, strings.Fields(question)...)
		ask := map[string]step{"call": (*stage).call, "receive": (*stage).receive}[words[2]]
		if ask == nil {
			return "", fmt.Errorf("%q: want > call URL or > receive URL", line)
		}
		answer, err := ask(s, append(words[1:2], words[3:]...))
		if err != nil {
			return "", fmt.Errorf("%s: %w", question, err)
		}
		out.WriteString(answer)
	}
	return out.String(), nil
}

// request reads PROXY URL [METHOD] [to=IP[:PORT]] [from=IP] [as=TRUST-DOMAIN/ns/NS/sa/SA] [HEADER=VALUE]...
func (s *stage) request(args []string) (*actor, walk.Request, error) {
	var none walk.Request
	a, err := s.actor(args)
	if err != nil || len(args) < 2 {
		return nil, none, errors.Join(err, errors.New("want PROXY URL [METHOD] [to=IP] [HEADER=VALUE]"))
	}
	if err := s.settle(); err != nil {
		return nil, none, err
	}
	u, err := url.Parse(args[1])
	if err != nil {
		return nil, none, err
	}
	r, method := walk.Request{Scheme: u.Scheme, Name: u.Hostname(), Certificate: "client", Headers: map[string]string{}}, "GET"
	r.Port = map[string]uint32{"http": 80, "https": 443, "h2c": 80}[u.Scheme]
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return nil, none, err
		}
		r.Port = uint32(n)
	}
	for _, arg := range args[2:] {
		key, value, is := strings.Cut(arg, "=")
		switch {
		case !is:
			method = arg
		case key == "to":
			r.Address = value
			if at, err := netip.ParseAddrPort(value); err == nil {
				r.Address, r.Port = at.Addr().String(), uint32(at.Port())
			}
		case key == "from":
			r.From = value
		case key == "as":
			r.Identity = "spiffe://" + value
		default:
			r.Headers[strings.ToLower(key)] = value
		}
	}
	for k, v := range map[string]string{":method": method, ":authority": u.Host, ":scheme": u.Scheme, ":path": u.RequestURI()} {
		if _, is := r.Headers[k]; !is {
			r.Headers[k] = v
		}
	}
	return a, r, nil
}

// resolve acts as the cluster's DNS: it returns the address of a name, for an application in a namespace. Of a service
// with addresses of both IP versions, it returns the first of IPv4.
func (s *stage) resolve(host, namespace string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	snapshot := s.pipeline.mirror.Current()
	for _, name := range []string{host + "." + namespace + suffix, host + suffix, host + ".cluster.local", host} {
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			for r := range snapshot.ByHost(kind, name) {
				all := r.(*model.Service).Spec.GetAddresses()
				for _, text := range all {
					if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
						return text
					}
				}
				if len(all) > 0 {
					return all[0]
				}
			}
		}
		for r := range snapshot.ByHost(model.KindEndpoints, name) {
			for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
				if ip, err := netip.ParseAddr(e.GetAddress()); err == nil {
					return ip.String()
				}
			}
		}
	}
	return "203.0.113.1" // outside
}
