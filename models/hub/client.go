package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// Token is an access token. Printing or logging it shows three stars.
type Token string

// String implements fmt.Stringer.
func (t Token) String() string {
	if t == "" {
		return ""
	}
	return "***"
}

// GoString implements fmt.GoStringer.
func (t Token) GoString() string { return t.String() }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText keeps the token out of JSON and other encodings.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Options configure a Client. The zero value reads from the public hub without a
// token into the cache directory of huggingface_hub.
type Options struct {
	Endpoint string // "" = https://huggingface.co
	Token    Token  // "" = anonymous
	CacheDir string // "" = DefaultCacheDir()
	Offline  bool   // use the cache alone
	Parallel int    // files at once; 0 = 4
	Retries  int    // failures in a row without a byte of progress before a file is given up; 0 = 8, < 0 = none
	// Stall is how long a connection may deliver nothing before it is cut and the
	// file is resumed; 0 = 60 s.
	Stall time.Duration
	// MaxWait is the longest pause that a server may ask for by Retry-After; 0 = 5 min.
	MaxWait   time.Duration
	Transport http.RoundTripper // nil = a transport with timeouts that honours HTTPS_PROXY
	UserAgent string            // "" = "rag2"
}

// FromEnv reads the variables that huggingface_hub reads: HF_ENDPOINT, HF_TOKEN (or
// HUGGING_FACE_HUB_TOKEN, or the file HF_TOKEN_PATH, by default HF_HOME/token),
// HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE.
func FromEnv() Options {
	o := Options{Endpoint: os.Getenv("HF_ENDPOINT"), CacheDir: DefaultCacheDir()}
	for _, v := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := strings.TrimSpace(os.Getenv(v)); t != "" && o.Token == "" {
			o.Token = Token(t)
		}
	}
	if o.Token == "" {
		path := os.Getenv("HF_TOKEN_PATH")
		if path == "" {
			path = filepath.Join(home(), "token")
		}
		if b, err := os.ReadFile(path); err == nil {
			o.Token = Token(strings.TrimSpace(string(b)))
		}
	}
	switch strings.ToUpper(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "ON", "YES", "TRUE":
		o.Offline = true
	}
	return o
}

// home is huggingface_hub's HF_HOME.
func home() string {
	if h := os.Getenv("HF_HOME"); h != "" {
		return h
	}
	if c := os.Getenv("XDG_CACHE_HOME"); c != "" {
		return filepath.Join(c, "huggingface")
	}
	h, err := os.UserHomeDir()
	if err != nil {
		h = os.TempDir()
	}
	return filepath.Join(h, ".cache", "huggingface")
}

// DefaultCacheDir is HF_HUB_CACHE, or hub/ under HF_HOME (by default
// ~/.cache/huggingface).
func DefaultCacheDir() string {
	if c := os.Getenv("HF_HUB_CACHE"); c != "" {
		return c
	}
	return filepath.Join(home(), "hub")
}

// Validate lists everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		switch {
		case err != nil:
			errs = append(errs, errors.New("the endpoint is no URL"))
		case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			errs = append(errs, fmt.Errorf("endpoint %q; http://host or https://host is needed", u.Redacted()))
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			errs = append(errs, errors.New("the endpoint may not hold a user, a query or a fragment"))
		}
	}
	if strings.ContainsFunc(string(o.Token), func(r rune) bool { return r <= ' ' || r >= 127 }) {
		errs = append(errs, errors.New("the token holds spaces or characters that are not ASCII"))
	}
	if o.Parallel < 0 || o.Parallel > 64 {
		errs = append(errs, fmt.Errorf("%d files at once; 1 … 64 are possible", o.Parallel))
	}
	if o.Stall < 0 || o.MaxWait < 0 {
		errs = append(errs, errors.New("a negative timeout"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// Client talks to one hub.
type Client struct {
	opt  Options
	base *url.URL
	http *http.Client
	// sleep waits for a pause between tries; tests replace it.
	sleep sleeper
}

// New makes a client; it opens no connection.
func New(o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	if o.CacheDir == "" {
		o.CacheDir = DefaultCacheDir()
	}
	if o.Parallel == 0 {
		o.Parallel = 4
	}
	if o.Retries == 0 {
		o.Retries = 8
	}
	o.Retries = max(o.Retries, 0)
	if o.Stall == 0 {
		o.Stall = time.Minute
	}
	if o.MaxWait == 0 {
		o.MaxWait = 5 * time.Minute
	}
	if o.UserAgent == "" {
		o.UserAgent = "rag2"
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: 60 * time.Second,
			IdleConnTimeout:       90 * time.Second,
			MaxIdleConnsPerHost:   8,
			ForceAttemptHTTP2:     true,
			DisableCompression:    true, // lengths and ranges are those of the stored bytes
		}
	}
	base, err := url.Parse(strings.TrimRight(o.Endpoint, "/"))
	if err != nil {
		return nil, errors.New("hub: the endpoint is no URL")
	}
	c := &Client{opt: o, base: base, sleep: sleep}
	c.http = &http.Client{Transport: &authTransport{base: o.Transport, origin: origin(base), token: o.Token, agent: o.UserAgent}, CheckRedirect: checkRedirect}
	return c, nil
}

// CacheDir is where models are kept.
func (c *Client) CacheDir() string { return c.opt.CacheDir }

// Offline reports whether the client may not use the network.
func (c *Client) Offline() bool { return c.opt.Offline }

// origin is the scheme, host and port that may see the token.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// authTransport adds the token to requests of its origin. Requests carry no
// Authorization of their own, so that nothing is left for redirects to copy.
type authTransport struct {
	base          http.RoundTripper
	origin, agent string
	token         Token
}

// RoundTrip implements http.RoundTripper.
func (t *authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	r.Header.Set("User-Agent", t.agent)
	if t.token != "" && origin(r.URL) == t.origin {
		r.Header.Set("Authorization", "Bearer "+string(t.token))
	}
	return t.base.RoundTrip(r)
}

// maxRedirects is enough for a renamed repository and a storage service.
const maxRedirects = 8

var errRedirect = errors.New("redirect is refused")

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("%w: more than %d", errRedirect, maxRedirects)
	}
	if from := via[len(via)-1].URL; from.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("%w: from https to %s://%s", errRedirect, r.URL.Scheme, r.URL.Host)
	}
	r.Header.Del("Referer") // may carry a signed query
	return nil
}
