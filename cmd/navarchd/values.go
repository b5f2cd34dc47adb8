package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The functions below return parsers of environment variables (environment.read). A parser stores the value in the
// variable to which the argument into points. An error leaves the variable unchanged.

func text(into *string) func(string) error {
	return func(v string) error { *into = v; return nil }
}

// list parses a comma-separated list, and appends the elements to the variable. Spaces around elements and empty
// elements are ignored.
func list(into *[]string) func(string) error {
	return func(v string) error {
		for one := range strings.SplitSeq(v, ",") {
			if one = strings.TrimSpace(one); one != "" {
				*into = append(*into, one)
			}
		}
		return nil
	}
}

func duration(into *time.Duration) func(string) error {
	return func(v string) (err error) {
		d, err := time.ParseDuration(v)
		if err == nil && d < 0 {
			err = errors.New("must not be negative")
		}
		if err == nil {
			*into = d
		}
		return err
	}
}

func boolean(into *bool) func(string) error {
	return func(v string) (err error) {
		b, err := strconv.ParseBool(v)
		if err == nil {
			*into = b
		}
		return err
	}
}

// addressRange parses a range of at least 16 IP addresses. The argument bits is the length of an address: 32 or 128.
func addressRange(into *netip.Prefix, bits int) func(string) error {
	return func(v string) error {
		p, err := netip.ParsePrefix(v)
		switch {
		case err != nil:
			return err
		case p.Addr().BitLen() != bits || p.Bits() > bits-4:
			return fmt.Errorf("want a range of addresses of %d bits, with 16 of them at least", bits)
		}
		*into = p.Masked()
		return nil
	}
}

// addressBlocks parses a comma-separated list of ranges of IP addresses, which replaces the value of the variable.
func addressBlocks(into *[]netip.Prefix) func(string) error {
	return func(v string) error {
		var all []netip.Prefix
		for text := range strings.SplitSeq(v, ",") {
			p, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return err
			}
			all = append(all, p.Masked())
		}
		*into = all
		return nil
	}
}

func count(into *int) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err == nil && n < 0 {
			err = errors.New("must not be negative")
		}
		if err == nil {
			*into = n
		}
		return err
	}
}

func perSecond(into *float64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseFloat(v, 64)
		if err == nil && !(n >= 0 && n < 1e9) {
			err = errors.New("want a number of requests a second, 0 or more")
		}
		if err == nil {
			*into = n
		}
		return err
	}
}
