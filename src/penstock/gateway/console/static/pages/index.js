// The pages of the console, in the order of the navigation. A page is a module: {path, title, nav, key, start}.

import { about } from "./about.js";
import { access } from "./access.js";
import { user } from "./access_user.js";
import { archive } from "./archive.js";
import { broker, brokers } from "./brokers.js";
import { connections } from "./connections.js";
import { group } from "./group.js";
import { groups } from "./groups.js";
import { message } from "./message.js";
import { overview } from "./overview.js";
import { pipeline, pipelines } from "./pipelines.js";
import { queue } from "./queue.js";
import { queues } from "./queues.js";
import { schedule, schedules } from "./schedules.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";
import { transactions } from "./transactions.js";
import { views } from "./views.js";
import { webhook, webhooks } from "./webhooks.js";

export const pages = [overview, topics, topic, message, views, queues, queue, schedules, schedule, webhooks, webhook, pipelines, pipeline, archive, groups, group, brokers, broker, connections, transactions, access, user, about];
