package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/redirect"
)

// replaceTable replaces our table in one transaction.
func replaceTable(s redirect.Set) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	ours := &nftables.Table{Name: redirect.TableName, Family: nftables.TableFamilyINet}
	c.AddTable(ours) // otherwise deleting an absent table would be an error
	c.DelTable(ours)
	c.AddTable(ours)
	for _, chain := range s.Chains {
		to := c.AddChain(chainOf(ours, chain))
		for _, r := range chain.Rules {
			exprs, err := encode(r)
			if err != nil {
				return fmt.Errorf("%s: %w", r, err)
			}
			c.AddRule(&nftables.Rule{Table: ours, Chain: to, Exprs: exprs})
		}
	}
	return c.Flush()
}

// deleteTable deletes our table, if it exists.
func deleteTable() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	ours := &nftables.Table{Name: redirect.TableName, Family: nftables.TableFamilyINet}
	c.AddTable(ours)
	c.DelTable(ours)
	return c.Flush()
}

// Present reports whether our table is in the network namespace of this thread. The error is that of the kernel when it
// lists its tables.
func Present() (bool, error) {
	c, err := nftables.New()
	if err != nil {
		return false, err
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == redirect.TableName }), err
}

func chainOf(t *nftables.Table, c redirect.Chain) *nftables.Chain {
	hook := nftables.ChainHookPrerouting
	if c.Hook == redirect.Output {
		hook = nftables.ChainHookOutput
	}
	priority, policy := nftables.ChainPriority(c.Priority), nftables.ChainPolicyAccept
	return &nftables.Chain{Name: c.Name, Table: t, Type: nftables.ChainType(c.Kind), Hooknum: hook, Priority: &priority, Policy: &policy}
}

// encode returns a rule as nftables expressions, those that nft makes of its text.
func encode(r redirect.Rule) (out []expr.Any, err error) {
	for _, m := range r.If {
		exprs, err := encodeMatch(m)
		if err != nil {
			return nil, err
		}
		out = append(out, exprs...)
	}
	for _, a := range r.Do {
		exprs, err := encodeAction(a)
		if err != nil {
			return nil, err
		}
		out = append(out, exprs...)
	}
	return out, nil
}

// register is the nftables register for all loads and comparisons.
const register = 1

var metaKeys = map[redirect.Field]expr.MetaKey{
	redirect.InInterface: expr.MetaKeyIIFNAME, redirect.OutInterface: expr.MetaKeyOIFNAME, redirect.Family: expr.MetaKeyNFPROTO,
	redirect.Protocol: expr.MetaKeyL4PROTO, redirect.UID: expr.MetaKeySKUID, redirect.GID: expr.MetaKeySKGID, redirect.Mark: expr.MetaKeyMARK,
}

func encodeMatch(m redirect.Match) ([]expr.Any, error) {
	op := expr.CmpOpEq
	if m.Not {
		op = expr.CmpOpNeq
	}
	compare := func(data []byte) expr.Any { return &expr.Cmp{Op: op, Register: register, Data: data} }
	meta := &expr.Meta{Key: metaKeys[m.Field], Register: register}
	switch m.Field {
	case redirect.InInterface, redirect.OutInterface:
		return []expr.Any{meta, compare(append([]byte(m.Name), make([]byte, unix.IFNAMSIZ-len(m.Name))...))}, nil
	case redirect.Family, redirect.Protocol:
		return []expr.Any{meta, compare([]byte{byte(m.Number)})}, nil
	case redirect.UID, redirect.GID, redirect.Mark:
		return []expr.Any{meta, compare(binaryutil.NativeEndian.PutUint32(m.Number))}, nil
	case redirect.Source, redirect.Destination:
		return encodeAddress(m.Field == redirect.Source, m.Prefix, compare), nil
	case redirect.SourcePort, redirect.Port:
		at := uint32(0)
		if m.Field == redirect.Port {
			at = 2
		}
		return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: at, Len: 2},
			compare(port(m.Number))}, nil
	case redirect.ConnMark:
		return []expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: register}, compare(binaryutil.NativeEndian.PutUint32(m.Number))}, nil
	case redirect.ConnState:
		zero := make([]byte, 4)
		return []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: register},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(m.Number), Xor: zero},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: zero}}, nil
	}
	return nil, fmt.Errorf("no field %q", m.Field)
}

func port(n uint32) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }

// encodeAddress compares an address, for packets of its family only.
func encodeAddress(source bool, p netip.Prefix, compare func([]byte) expr.Any) []expr.Any {
	family, at, size := byte(unix.NFPROTO_IPV4), uint32(16), uint32(4)
	if source {
		at = 12
	}
	if p.Addr().Is6() {
		if family, at, size = unix.NFPROTO_IPV6, 24, 16; source {
			at = 8
		}
	}
	out := []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: size}}
	if !p.IsSingleIP() {
		mask := make([]byte, size)
		for i := range p.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		out = append(out, &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: size, Mask: mask, Xor: make([]byte, size)})
	}
	return append(out, compare(p.Masked().Addr().AsSlice()))
}

func encodeAction(a redirect.Action) ([]expr.Any, error) {
	load := func(data []byte) expr.Any { return &expr.Immediate{Register: register, Data: data} }
	switch a.Verb {
	case redirect.Accept:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, nil
	case redirect.Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}, nil
	case redirect.RedirectTo:
		return []expr.Any{load(port(a.Number)), &expr.Redir{RegisterProtoMin: register}}, nil
	case redirect.TransparentTo:
		return []expr.Any{load(port(a.Number)), &expr.TProxy{Family: byte(a.Family), TableFamily: unix.NFPROTO_INET, RegPort: register}}, nil
	case redirect.SetMark:
		return []expr.Any{load(binaryutil.NativeEndian.PutUint32(a.Number)),
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register}}, nil
	case redirect.SaveMark:
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
			&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: register}}, nil
	case redirect.RestoreMark:
		return []expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: register},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register}}, nil
	case redirect.SetZone:
		return []expr.Any{load(binaryutil.NativeEndian.PutUint16(uint16(a.Number))),
			&expr.Ct{Key: expr.CtKeyZONE, SourceRegister: true, Register: register}}, nil
	}
	return nil, fmt.Errorf("no action %q", a.Verb)
}
