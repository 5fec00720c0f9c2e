/* amqp_load COMMAND OPTIONS: see ../README.md. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "publisher.h"

static const struct option names[] = {{"address", 1, 0, 'a'},
                                      {"queue", 1, 0, 'q'},
                                      {"arguments", 1, 0, 'A'},
                                      {"size", 1, 0, 's'},
                                      {"window", 1, 0, 'w'},
                                      {"prefetch", 1, 0, 'f'},
                                      {"count", 1, 0, 'n'},
                                      {"seconds", 1, 0, 't'},
                                      {"rate", 1, 0, 'r'},
                                      {"no-publish", 0, 0, 'P'},
                                      {"no-consume", 0, 0, 'C'},
                                      {"transient", 0, 0, 'T'},
                                      {"messages", 1, 0, 'M'},
                                      {0, 0, 0, 0}};

static void split_addresses(struct options *o, char *text) {
  char *state = NULL;
  o->addresses = 0;
  for (char *item = strtok_r(text, ",", &state); item && o->addresses < 16; item = strtok_r(NULL, ",", &state))
    o->address[o->addresses++] = item;
}

static void parse(struct options *o, int argc, char **argv) {
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) switch (c) {
      case 'a': split_addresses(o, optarg); break;
      case 'q': o->queue = optarg; break;
      case 'A': o->arguments = optarg; break;
      case 's': o->size = atoi(optarg); break;
      case 'w': o->window = atoi(optarg); break;
      case 'f': o->prefetch = atoi(optarg); break;
      case 'n': o->count = strtoull(optarg, NULL, 10); break;
      case 't': o->seconds = atof(optarg); break;
      case 'r': o->rate = atof(optarg); break;
      case 'P': o->publish = false; break;
      case 'C': o->consume = false; break;
      case 'M': o->messages = optarg; break;
      case 'T': o->persistent = false; break;
      default: die("unknown option");
    }
  if (optind != argc) die("usage: amqp_load load|failover|declare|bind|floor --address HOST:PORT[,...] ...");
  if (o->size < MIN_BODY || o->window < 1 || o->prefetch < 1 || o->prefetch > 65535 || o->count > MAX_MESSAGES)
    die("option out of range");
}

static void require(bool condition, const char *text) {
  if (!condition) die("%s", text);
}

int main(int argc, char **argv) {
  struct options o = {.queue = "bench",
                      .arguments = "",
                      .size = 1024,
                      .window = 1000,
                      .prefetch = 1000,
                      .publish = true,
                      .consume = true,
                      .persistent = true};
  const char *command = argc > 1 ? argv[1] : "";
  if (argc > 1) parse(&o, argc - 1, argv + 1);
  if (!strcmp(command, "floor")) {
    require(o.count > 0, "floor: --count");
    return run_floor(&o);
  }
  require(o.addresses > 0, "--address HOST:PORT[,...]");
  if (!strcmp(command, "load")) {
    require(o.publish || o.consume, "load: nothing to do");
    require(!o.messages || !o.consume, "load: --messages goes with --no-consume");
    require(!o.publish || o.count || o.seconds > 0, "load: --count or --seconds");
    return run_load(&o);
  }
  if (!strcmp(command, "failover")) {
    require(o.seconds > 0 && o.rate > 0 && o.seconds * o.rate < MAX_MESSAGES, "failover: --seconds and --rate");
    return run_failover(&o);
  }
  if (!strcmp(command, "declare") || !strcmp(command, "bind")) {
    require(o.count > 0, "declare and bind: --count");
    return run_declare(&o, *command == 'b');
  }
  die("unknown command %s", command);
}
